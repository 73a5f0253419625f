// node-redis and ioredis against the server: node clients.js PORT
"use strict";
const assert = require("node:assert/strict");
const { createClient } = require("redis");
const Redis = require("ioredis");

const port = Number(process.argv[2]);

async function nodeRedis() {
  const client = createClient({ socket: { port, host: "127.0.0.1" } });
  await client.connect();
  await client.flushDb();
  assert.equal(await client.set("a", "1", { EX: 100, NX: true }), "OK");
  assert.equal(await client.set("a", "2", { NX: true }), null);
  assert.equal(await client.incrBy("a", 5), 6);
  await client.hSet("h", { one: "1", two: "2" });
  assert.deepEqual({ ...(await client.hGetAll("h")) }, { one: "1", two: "2" });
  await client.zAdd("z", [
    { score: 1, value: "one" },
    { score: 2.5, value: "two" },
  ]);
  assert.deepEqual(await client.zRangeWithScores("z", 0, -1), [
    { value: "one", score: 1 },
    { value: "two", score: 2.5 },
  ]);
  const answers = await client.multi().set("b", "1").incr("b").get("b").exec();
  assert.deepEqual(answers, ["OK", 2, "2"]);
  await client.mSet(Array.from({ length: 50 }, (_, i) => [`key${i}`, `${i}`]));
  let found = 0;
  for await (const keys of client.scanIterator({ MATCH: "key*", COUNT: 7 })) {
    found += Array.isArray(keys) ? keys.length : 1;
  }
  assert.equal(found, 50);
  const listener = client.duplicate();
  await listener.connect();
  const heard = new Promise((resolve) => listener.subscribe("news", resolve).then(() => client.publish("news", "hello")));
  assert.equal(await heard, "hello");
  await listener.disconnect();
  await client.executeIsolated(async (alone) => {
    await alone.watch("b");
    await client.set("b", "changed");
    await assert.rejects(alone.multi().set("b", "lost").exec());
  });
  assert.equal(await client.get("b"), "changed");
  await client.quit();
}

async function ioredis() {
  const client = new Redis(port, "127.0.0.1");
  await client.flushdb();
  const answers = await client.pipeline().set("a", "1").get("a").hset("a", "f", "v").exec();
  assert.equal(answers[1][1], "1");
  assert.match(answers[2][0].message, /WRONGTYPE/);
  await client.set("big", Buffer.alloc(300000, 7));
  assert.equal((await client.getBuffer("big")).length, 300000);
  assert.equal(await client.call("WAITAOF", 1, 0, 0).then((it) => it[0]), 1);
  await client.call("TS.ADD", "t", 1000, 1.5);
  assert.deepEqual(await client.call("TS.RANGE", "t", "-", "+"), [[1000, "1.5"]]);
  assert.match(await client.info(), /redis_version:7/);
  assert.ok((await client.call("COMMAND")).length > 100);
  await client.quit();
}

nodeRedis()
  .then(ioredis)
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
