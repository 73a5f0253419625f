"""redis-py against the server: clients.py PORT"""

import sys

import redis

client = redis.Redis(port=int(sys.argv[1]))
client.flushdb()
assert client.set("a", "1", ex=100, nx=True) is True
assert client.set("a", "2", nx=True) is None
assert client.incrby("a", 5) == 6 and 0 < client.ttl("a") <= 100
assert client.hset("h", mapping={"one": 1, "two": 2}) == 2
assert client.hgetall("h") == {b"one": b"1", b"two": b"2"}
assert client.zadd("z", {"one": 1, "two": 2.5}) == 2
assert client.zrange("z", 0, -1, withscores=True) == [(b"one", 1.0), (b"two", 2.5)]
assert client.zrangebyscore("z", "(1", "+inf") == [b"two"]
assert client.sadd("s", "x", "y") == 2 and client.smembers("s") == {b"x", b"y"}
try:
    client.get("h")
except redis.ResponseError as error:
    assert str(error).startswith("WRONGTYPE"), error
else:
    raise AssertionError("a hash is no string")

with client.pipeline(transaction=False) as pipe:
    for number in range(100):
        pipe.set(f"key{number}", number)
    assert pipe.execute() == [True] * 100
assert len(set(client.scan_iter(match="key*", count=7))) == 100
assert dict(client.hscan_iter("h")) == {b"one": b"1", b"two": b"2"}

with client.pipeline() as pipe:
    pipe.watch("b")
    client.set("b", "changed")
    pipe.multi()
    pipe.set("b", "lost")
    try:
        pipe.execute()
    except redis.WatchError:
        pass
    else:
        raise AssertionError("a watched key has changed")
client.transaction(lambda pipe: pipe.multi() or pipe.incr("n"), "n")
assert client.get("b") == b"changed" and client.get("n") == b"1"

with client.pubsub() as listener:
    listener.subscribe("news")
    assert listener.get_message(timeout=10)["type"] == "subscribe"
    assert client.publish("news", "hello") == 1
    assert listener.get_message(timeout=10)["data"] == b"hello"

assert client.info()["redis_version"].startswith("7.")
assert client.config_get("appendonly") == {"appendonly": "yes"}
assert client.execute_command("WAITAOF", 1, 0, 0)[0] == 1
series = client.ts()
assert series.add("t", 1000, 1.5, labels={"kind": "speed"}) == 1000
assert series.range("t", "-", "+") == [(1000, 1.5)]
assert series.get("t") == (1000, 1.5)
