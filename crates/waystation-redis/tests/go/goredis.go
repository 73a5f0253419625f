package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checks stops at the first answer that is not the expected one.
type checks struct{ err error }

func (c *checks) same(what string, got, expected interface{}) {
	if c.err == nil && !reflect.DeepEqual(got, expected) {
		c.err = fmt.Errorf("%s: %#v, expected %#v", what, got, expected)
	}
}

func goRedis(address string) error {
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
		err := withClient(client)
		client.Close()
		if err != nil {
			return fmt.Errorf("protocol %d: %w", protocol, err)
		}
	}
	return nil
}

func withClient(client *redis.Client) error {
	ctx := context.Background()
	c := &checks{}
	c.same("flush", client.FlushDB(ctx).Err(), nil)
	c.same("set", client.Set(ctx, "a", "1", time.Minute).Val(), "OK")
	c.same("setnx", client.SetNX(ctx, "a", "2", 0).Val(), false)
	c.same("ttl", client.TTL(ctx, "a").Val(), time.Minute)
	c.same("incr", client.IncrBy(ctx, "a", 5).Val(), int64(6))
	c.same("nil", client.Get(ctx, "none").Err(), redis.Nil)
	c.same("hset", client.HSet(ctx, "h", "one", 1, "two", 2).Val(), int64(2))
	c.same("hgetall", client.HGetAll(ctx, "h").Val(), map[string]string{"one": "1", "two": "2"})
	members := []redis.Z{{Score: 1, Member: "one"}, {Score: 2.5, Member: "two"}}
	c.same("zadd", client.ZAdd(ctx, "z", members...).Val(), int64(2))
	c.same("zrange", client.ZRangeWithScores(ctx, "z", 0, -1).Val(), members)
	c.same("wrong kind", strings.HasPrefix(fmt.Sprint(client.Get(ctx, "h").Err()), "WRONGTYPE"), true)
	pipeline(ctx, client, c)
	transaction(ctx, client, c)
	messages(ctx, client, c)
	return c.err
}

func pipeline(ctx context.Context, client *redis.Client, c *checks) {
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 100; i++ {
			pipe.Set(ctx, "key"+strconv.Itoa(i), i, 0)
		}
		return nil
	})
	c.same("pipeline", err, nil)
	found := map[string]bool{}
	scan := client.Scan(ctx, 0, "key*", 7).Iterator()
	for scan.Next(ctx) {
		found[scan.Val()] = true
	}
	c.same("scan", len(found), 100)
	c.same("scan ends", scan.Err(), nil)
}

func transaction(ctx context.Context, client *redis.Client, c *checks) {
	added := func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "b", "new", 0)
			return nil
		})
		return err
	}
	c.same("watch", client.Watch(ctx, added, "b"), nil)
	disturbed := func(tx *redis.Tx) error {
		client.Set(ctx, "b", "changed", 0)
		return added(tx)
	}
	c.same("undone", errors.Is(client.Watch(ctx, disturbed, "b"), redis.TxFailedErr), true)
	c.same("get", client.Get(ctx, "b").Val(), "changed")
}

func messages(ctx context.Context, client *redis.Client, c *checks) {
	listener := client.Subscribe(ctx, "news")
	defer listener.Close()
	if _, err := listener.Receive(ctx); err != nil {
		c.same("subscribe", err, nil)
		return
	}
	client.Publish(ctx, "news", "hello")
	message, err := listener.ReceiveMessage(ctx)
	c.same("receive", err, nil)
	if err == nil {
		c.same("message", message.Payload, "hello")
	}
}
