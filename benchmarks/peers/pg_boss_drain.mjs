// pg-boss: a job queue in Node. `node pg_boss_drain.mjs TOPIC EVENTS`
//
// Three workers whose handlers are given 4,000 jobs each. They fetch again at once while batches are full.

import { performance } from "node:perf_hooks";

import { PgBoss } from "pg-boss";

import { answer, bulks, count, takePart, topic } from "./contest.mjs";
import { Publisher } from "./publisher.mjs";

const QUEUE = "events";
const OPTIONS = { batchSize: 4_000, localConcurrency: 3, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };

const boss = new PgBoss(process.env.DATABASE_URL);
boss.on("error", console.error);
await boss.start();
await boss.createQueue(QUEUE);
for (const events of bulks()) {
  await boss.insert(QUEUE, events.map((data) => ({ data })));
}
const publisher = new Publisher(topic, count);
await publisher.open();

await takePart();
const began = performance.now();
await boss.work(QUEUE, OPTIONS, (jobs) => publisher.publishAll(jobs.map(({ data }) => data)));
const seconds = ((await publisher.everything()) - began) / 1_000;
await boss.stop();
await publisher.close();
answer({ events: publisher.acknowledged, seconds });
