// Readings and windows as Parquet files, read by hyparquet, which shares no code with the writer.
import assert from 'node:assert';
import { parquetMetadata, parquetReadObjects } from 'hyparquet';

const base = `${process.argv[2]}/_waystation/databases/cars`;

async function table(path) {
  const reply = await fetch(`${base}/${path}&format=parquet`);
  assert.strictEqual(reply.status, 200);
  assert.strictEqual(reply.headers.get('content-type'), 'application/vnd.apache.parquet');
  const file = await reply.arrayBuffer();
  return { rows: await parquetReadObjects({ file, utf8: false }), groups: parquetMetadata(file).row_groups.length };
}

const readings = Array.from({ length: 120_000 }, (_, at) => ({ sensor: 'speed', time: at * 1_000_000, value: at % 50 }));
const mixed = [1.5, 7, true, 'ünï', { base64: 'AP8=' }, [1, { a: null }]];
mixed.forEach((value, at) => readings.push({ sensor: 'any', time: at, value }));
const put = await fetch(`${base}/readings?device=car17`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify(readings),
});
assert.strictEqual(put.status, 201, await put.text());

const any = (await table('readings?device=car17&sensor=any')).rows;
assert.deepStrictEqual(any[0].time, new Date(0));
assert.deepStrictEqual(any.map((row) => [row.device, row.sensor]), mixed.map(() => ['car17', 'any']));
assert.deepStrictEqual(any.map((row) => row.value ?? null), [1.5, 7, null, null, null, null]);
assert.deepStrictEqual(any.map((row) => row.integer ?? null), [null, 7n, null, null, null, null]);
assert.strictEqual(any[2].flag, true);
assert.strictEqual(any[3].text, 'ünï');
assert.deepStrictEqual(Buffer.from(any[4].bytes), Buffer.from([0, 255]));
assert.deepStrictEqual(any[5].json, [1, { a: null }]);

const speed = await table('readings?device=car17&sensor=speed');
assert.strictEqual(speed.groups, 3);
assert.ok(speed.rows.every((row, at) => row.time.getTime() === at * 1000 && row.value === at % 50));
assert.strictEqual(speed.rows.length, 120_000);
assert.strictEqual((await table('readings?device=car17&sensor=speed&limit=7')).rows.length, 7);
assert.strictEqual((await table('readings?device=car17&sensor=none')).rows.length, 0);
assert.strictEqual((await table('latest?device=car17')).rows.length, 2);

const windows = (await table('windows?device=car17&sensor=speed&width=1h')).rows;
assert.strictEqual(windows.length, Math.ceil(120_000 / 3600));
const { sensor, start, count, min, max, avg, sum } = windows[1];
assert.deepStrictEqual([sensor, start, count], ['speed', new Date(3_600_000), 3600n]);
assert.deepStrictEqual([min, max, avg, sum], [0, 49, 24.5, 88_200]);
