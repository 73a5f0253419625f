// PouchDB replicates with the server both ways, with conflicts and attachments, follows its changes, and queries it.
'use strict';
const assert = require('node:assert');
const PouchDB = require('pouchdb-core')
  .plugin(require('pouchdb-adapter-memory'))
  .plugin(require('pouchdb-adapter-http'))
  .plugin(require('pouchdb-replication'))
  .plugin(require('pouchdb-find'));

const server = process.argv[2];
const remote = (name) => new PouchDB(`${server}/${name}`);
const local = (name) => new PouchDB(name, { adapter: 'memory' });
const bytes = Buffer.from(Array.from({ length: 70000 }, (_, at) => (at * 7919) % 256));

async function replicatesBothWays() {
  const [here, there, other] = [local('here'), remote('cars'), local('other')];
  await here.put({ _id: 'a', n: 1, _attachments: { 'x y.bin': { content_type: 'a/b', data: bytes } } });
  await here.bulkDocs(Array.from({ length: 300 }, (_, n) => ({ _id: `d${n}`, n, text: 'ü'.repeat(n) })));
  const pushed = await here.replicate.to(there);
  assert.strictEqual(pushed.docs_written, 301);
  assert.strictEqual((await here.replicate.to(there)).docs_written, 0);
  const pulled = await other.replicate.from(there);
  assert.strictEqual(pulled.docs_written, 301);
  assert.ok(bytes.equals(await other.getAttachment('a', 'x y.bin')));
  assert.ok(bytes.equals(await there.getAttachment('a', 'x y.bin')));
  // Two replicas change one document; both versions are kept, and all three agree on the winner.
  const { _rev } = await here.get('a');
  await here.put({ _id: 'a', _rev, n: 2 });
  await other.put({ _id: 'a', _rev, n: 3 });
  await here.sync(there);
  await other.sync(there);
  await here.sync(there);
  const seen = await Promise.all([here, there, other].map((db) => db.get('a', { conflicts: true })));
  for (const doc of seen) {
    assert.strictEqual(doc._rev, seen[0]._rev);
    assert.strictEqual(doc._conflicts.length, 1);
  }
  await there.remove('a', seen[0]._conflicts[0]);
  await there.remove('d7', (await there.get('d7'))._rev);
  await here.sync(there);
  assert.strictEqual((await here.get('a', { conflicts: true }))._conflicts, undefined);
  await assert.rejects(here.get('d7'), { reason: 'deleted' });
  assert.strictEqual((await here.info()).doc_count, (await there.info()).doc_count);
}

async function followsChanges() {
  const db = remote('live');
  await db.info();
  const seen = [];
  const feed = db.changes({ live: true, since: 'now', include_docs: true, heartbeat: 1000 });
  const done = new Promise((resolve, reject) => {
    feed.on('change', (change) => {
      seen.push(change.doc.n);
      if (seen.length === 20) resolve();
    });
    feed.on('error', reject);
  });
  const target = local('target');
  const replication = db.replicate.to(target, { live: true, retry: true });
  await new Promise((resolve) => { setTimeout(resolve, 200); });
  for (let n = 0; n < 20; n++) {
    await db.put({ _id: `${n}`, n });
  }
  await done;
  assert.deepStrictEqual(seen, Array.from({ length: 20 }, (_, n) => n));
  feed.cancel();
  for (let tries = 0; (await target.info()).doc_count < 20; tries++) {
    assert.ok(tries < 100, 'live replication does not arrive');
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  replication.cancel();
}

async function queries() {
  const db = remote('find');
  await db.bulkDocs(Array.from({ length: 100 }, (_, n) => ({ _id: `${n}`, n, odd: n % 2 === 1 })));
  await db.createIndex({ index: { fields: ['n'] } });
  const found = await db.find({ selector: { n: { $gte: 90 }, odd: true }, sort: ['n'] });
  assert.deepStrictEqual(found.docs.map((doc) => doc.n), [91, 93, 95, 97, 99]);
  assert.strictEqual((await db.getIndexes()).indexes.length, 2);
  assert.strictEqual((await db.explain({ selector: { n: 1 } })).index.type, 'json');
}

async function destroysAndCreates() {
  for (let round = 0; round < 5; round++) {
    const db = remote('again');
    assert.strictEqual((await db.info()).doc_count, 0);
    await db.put({ _id: 'x' });
    await db.destroy();
  }
}

(async () => {
  await replicatesBothWays();
  await followsChanges();
  await queries();
  await destroysAndCreates();
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
