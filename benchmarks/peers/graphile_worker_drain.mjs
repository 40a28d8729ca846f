// graphile-worker: a job queue in Node. `node graphile_worker_drain.mjs TOPIC EVENTS`
//
// A job is one event, so that many run at once, and its local queue holds five times as many. Jobs that are done at the
// same time are completed with one statement.

import { performance } from "node:perf_hooks";

import { Logger, makeWorkerUtils, run } from "graphile-worker";

import { answer, bulks, count, takePart, topic } from "./contest.mjs";
import { Publisher } from "./publisher.mjs";

const TASK = "publish";
const preset = {
  worker: {
    connectionString: process.env.DATABASE_URL,
    concurrentJobs: 1_000,
    maxPoolSize: 50,
    localQueue: { size: 5_000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

const utils = await makeWorkerUtils({ preset, logger });
await utils.migrate();
for (const events of bulks()) {
  await utils.addJobs(events.map((payload) => ({ identifier: TASK, payload })));
}
await utils.release();
const publisher = new Publisher(topic, count);
await publisher.open();

await takePart();
const began = performance.now();
const taskList = { [TASK]: (event) => publisher.publish(event) };
const runner = await run({ preset, logger, noHandleSignals: true, taskList });
const seconds = ((await publisher.everything()) - began) / 1_000;
await runner.stop();
await publisher.close();
answer({ events: publisher.acknowledged, seconds });
