// nano, CouchDB's own client for Node: databases, documents, bulk requests, attachments, queries, changes and
// replications.
'use strict';
const assert = require('node:assert');
const nano = require('nano')(process.argv[2]);

(async () => {
  await nano.db.create('nano');
  assert.ok((await nano.db.list()).includes('nano'));
  const db = nano.use('nano');
  const { rev } = await db.insert({ n: 1 }, 'a');
  await assert.rejects(db.insert({ n: 2 }, 'a'), { statusCode: 409 });
  const bulk = await db.bulk({ docs: Array.from({ length: 50 }, (_, n) => ({ _id: `b${n}`, n })) });
  assert.ok(bulk.every((row) => row.ok));
  const list = await db.list({ include_docs: true, startkey: 'b', limit: 3 });
  assert.deepStrictEqual(list.rows.map((row) => row.doc.n), [0, 1, 10]);
  assert.strictEqual((await db.fetch({ keys: ['a', 'zz'] })).rows[1].error, 'not_found');
  await db.attachment.insert('a', 'x.txt', Buffer.from('hello'), 'text/plain', { rev });
  assert.strictEqual((await db.attachment.get('a', 'x.txt')).toString(), 'hello');
  const parts = [{ name: 'one.bin', data: Buffer.from([0, 255, 13, 10]), content_type: 'a/b' }];
  await db.multipart.insert({ n: 3 }, parts, 'm');
  assert.deepStrictEqual(await db.attachment.get('m', 'one.bin'), Buffer.from([0, 255, 13, 10]));
  await db.createIndex({ index: { fields: ['n'] }, name: 'by-n' });
  const found = await db.find({ selector: { n: { $gt: 47 } }, sort: ['n'] });
  assert.deepStrictEqual(found.docs.map((doc) => doc.n), [48, 49]);
  const changes = await db.changes({ since: 0 });
  assert.strictEqual(changes.results.length, 53);
  const seen = [];
  await new Promise((resolve, reject) => {
    const reader = db.changesReader.start({ since: 'now', timeout: 2000 });
    reader.on('change', (change) => { seen.push(change.id); db.changesReader.stop(); resolve(); });
    reader.on('error', reject);
    setTimeout(() => db.insert({}, 'late').catch(reject), 300);
  });
  assert.deepStrictEqual(seen, ['late']);
  assert.strictEqual((await db.head('a')).etag.startsWith('"2-'), true);
  const copied = await nano.db.replicate('nano', 'copy', { create_target: true });
  assert.strictEqual(copied.history[0].docs_written, 54);
  assert.strictEqual((await nano.use('copy').attachment.get('a', 'x.txt')).toString(), 'hello');
  const { id } = await nano.db.replication.enable('nano', 'other', { create_target: true });
  const orders = nano.use('_replicator');
  for (let tries = 0; (await orders.get(id))._replication_state !== 'completed'; tries++) {
    assert.ok(tries < 300, 'the replication does not end');
    await new Promise((resolve) => { setTimeout(resolve, 100); });
  }
  assert.strictEqual((await nano.db.get('other')).doc_count, 54);
  await nano.db.destroy('nano');
  await assert.rejects(nano.db.get('nano'), { statusCode: 404 });
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
