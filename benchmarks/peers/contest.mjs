// A peer in Node as a contestant of benchmarks/contest.py, and the events that it has in its queue.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const DATA_BYTES = 400;
const BULK = 1_000;

/** The topic, and how many events there are. */
export const [topic, count] = [process.argv[2], Number(process.argv[3])];

/** Say that everything is ready, and wait for the word. */
export function takePart() {
  const lines = createInterface({ input: process.stdin });
  const word = new Promise((resolve) => lines.once("line", resolve)).finally(() => lines.close());
  console.log("ready");
  return word;
}

/** Say what was found. */
export function answer(values) {
  console.log(JSON.stringify(values));
}

/** The events, as large as those of benchmarks/backlog.py, in portions that one statement stores. */
export function* bulks() {
  for (let first = 1; first <= count; first += BULK) {
    const size = Math.min(BULK, count - first + 1);
    yield Array.from({ length: size }, (_, index) => event(first + index));
  }
}

function event(sequence) {
  const id = randomUUID();
  const created = new Date().toISOString().replace("Z", "000Z");
  const data = `{"note": "${"x".repeat(DATA_BYTES - '{"note": ""}'.length)}"}`;
  const body =
    `{"event_id": "${id}", "event_type": "order.paid", "version": 1, "occurred_at": "${created}", ` +
    `"actor": null, "data": ${data}}`;
  const attributes = {
    event_id: id,
    event_type: "order.paid",
    aggregate_type: "order",
    aggregate_id: String(sequence),
    created_at: created,
    sequence: String(sequence),
  };
  return { body, attributes };
}
