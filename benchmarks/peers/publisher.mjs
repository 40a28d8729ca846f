// How a peer in Node publishes: what its handlers ask for at the same time goes out in one request.

import { createRequire } from "node:module";
import { performance } from "node:perf_hooks";

process.env.METADATA_SERVER_DETECTION = "none"; // an emulator asks for no credentials, so that none are looked for

const load = createRequire(import.meta.url);
const { v1 } = load("@google-cloud/pubsub");
const { credentials } = load("@grpc/grpc-js");

const MAX_MESSAGES = 1_000; // more are refused
const REQUEST = { timeout: 15_000, retry: null };
const RUN_MILLISECONDS = 60_000; // a peer that takes longer has stopped working

/** Publishes to one topic of the emulator, and counts what it has acknowledged. */
export class Publisher {
  acknowledged = 0;
  #waiting = [];
  #topic;
  #client;
  #expected;
  #complete = Promise.withResolvers();

  constructor(topic, expected) {
    const [servicePath, port] = process.env.PUBSUB_EMULATOR_HOST.split(":");
    const projectId = process.env.PUBSUB_PROJECT_ID;
    this.#client = new v1.PublisherClient({
      servicePath,
      port: Number(port),
      projectId,
      sslCreds: credentials.createInsecure(),
    });
    this.#topic = `projects/${projectId}/topics/${topic}`;
    this.#expected = expected;
  }

  /** Be ready to publish. */
  async open() {
    await this.#client.initialize();
  }

  /** Publish what one handler has; done when it is acknowledged. */
  publish(event) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ event, resolve, reject });
      if (this.#waiting.length === 1) setImmediate(() => this.#send());
    });
  }

  /** Publish a batch; done when all of it is acknowledged. */
  async publishAll(events) {
    const requests = [];
    for (let start = 0; start < events.length; start += MAX_MESSAGES) {
      requests.push(this.#request(events.slice(start, start + MAX_MESSAGES)));
    }
    await Promise.all(requests);
  }

  /** When the last of the expected messages was acknowledged, in milliseconds. */
  async everything() {
    const late = setTimeout(() => this.#complete.reject(new Error("it stopped working")), RUN_MILLISECONDS);
    return this.#complete.promise.finally(() => clearTimeout(late));
  }

  async close() {
    await this.#client.close();
  }

  #send() {
    const waiting = this.#waiting;
    this.#waiting = [];
    this.publishAll(waiting.map(({ event }) => event)).then(
      () => waiting.forEach(({ resolve }) => resolve()),
      (error) => waiting.forEach(({ reject }) => reject(error)),
    );
  }

  async #request(events) {
    const messages = events.map(({ body, attributes }) => ({ data: Buffer.from(body), attributes }));
    await this.#client.publish({ topic: this.#topic, messages }, REQUEST);
    this.acknowledged += events.length;
    if (this.acknowledged >= this.#expected) this.#complete.resolve(performance.now());
  }
}
