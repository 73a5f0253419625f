package main

import (
	"fmt"
	"sort"

	"github.com/gomodule/redigo/redis"
)

// services gives the commands of the services of an edge platform, and prints what they are answered.
type services struct{ conn redis.Conn }

func show(answer interface{}) string {
	switch it := answer.(type) {
	case nil:
		return "nil"
	case []byte:
		return fmt.Sprintf("%q", it)
	case []interface{}:
		text := "["
		for _, part := range it {
			text += show(part) + " "
		}
		return text + "]"
	default:
		return fmt.Sprint(it)
	}
}

func (s services) ask(command string, args ...interface{}) {
	answer, err := s.conn.Do(command, args...)
	if err != nil {
		answer = err
	}
	fmt.Println(command, args, show(answer))
}

// together gives commands as one transaction, as the services do whenever they write more than one key.
func (s services) together(commands ...redis.Args) {
	_ = s.conn.Send("MULTI")
	for _, command := range commands {
		_ = s.conn.Send(fmt.Sprint(command[0]), command[1:]...)
	}
	s.ask("EXEC")
}

// metadata keeps objects under keys, names in hashes, and lists of objects in sorted sets.
func (s services) metadata() {
	for i, name := range []string{"camera", "pump", "valve"} {
		key := "md|dv:" + name + "-id"
		s.ask("EXISTS", key)
		s.ask("HEXISTS", "md|dv:name", name)
		s.together(
			redis.Args{"SET", key, fmt.Sprintf(`{"name":%q}`, name)},
			redis.Args{"ZADD", "md|dv", 0, key},
			redis.Args{"HSET", "md|dv:name", name, key},
			redis.Args{"ZADD", "md|dv:service:name:modbus", 1700000000000 + i, key},
			redis.Args{"ZADD", "md|dv:label:hall", 1700000000000 + i, key},
		)
	}
	s.ask("HGET", "md|dv:name", "pump")
	s.ask("HGET", "md|dv:name", "none")
	s.ask("ZCOUNT", "md|dv:service:name:modbus", "-inf", "+inf")
	s.ask("ZREVRANGE", "md|dv:service:name:modbus", 0, 1)
	s.ask("ZRANGE", "md|dv:service:name:modbus", 1, -1)
	s.ask("MGET", "md|dv:pump-id", "md|dv:none", "md|dv:valve-id")
	s.ask("ZUNIONSTORE", "cache", 2, "md|dv:service:name:modbus", "md|dv:label:hall")
	s.ask("ZREVRANGE", "cache", 0, -1)
	s.ask("ZINTERSTORE", "cache", 2, "md|dv:service:name:modbus", "md|dv:label:none")
	s.ask("DEL", "cache")
	s.together(
		redis.Args{"UNLINK", "md|dv:pump-id"},
		redis.Args{"ZREM", "md|dv", "md|dv:pump-id"},
		redis.Args{"HDEL", "md|dv:name", "pump"},
		redis.Args{"ZREM", "md|dv:service:name:modbus", "md|dv:pump-id"},
	)
	s.ask("ZCARD", "md|dv")
	s.ask("HLEN", "md|dv:name")
}

// events keeps readings with the times of their origin (nanoseconds), and deletes those that are old.
func (s services) events() {
	const start = 1700000000000000000
	for i := 0; i < 5; i++ {
		event, reading := fmt.Sprintf("cd|evt:%d", i), fmt.Sprintf("cd|rdg:%d", i)
		origin := start + i*1000000
		s.together(
			redis.Args{"SET", event, "{}"},
			redis.Args{"ZADD", "cd|evt", origin, event},
			redis.Args{"ZADD", "cd|evt:origin", origin, event},
			redis.Args{"ZADD", "cd|evt:device:name:pump", origin, event},
			redis.Args{"SET", reading, "{}"},
			redis.Args{"ZADD", "cd|rdg", 0, reading},
			redis.Args{"ZADD", "cd|rdg:deviceName:resourceName:pump:level", origin, reading},
			redis.Args{"ZADD", "cd|evt:readings:" + fmt.Sprint(i), 0, reading, 1, "cd|rdg:other"},
		)
	}
	s.ask("ZREVRANGEBYSCORE", "cd|evt:origin", start+3000000, start, "LIMIT", 1, 2)
	s.ask("ZRANGEBYSCORE", "cd|evt:origin", "(0", "+inf")
	s.ask("ZRANGEBYSCORE", "cd|evt:origin", "0", fmt.Sprint(start+1500000))
	s.ask("ZCOUNT", "cd|rdg:deviceName:resourceName:pump:level", start, start+2000000)
	s.ask("ZRANGE", "cd|evt:readings:3", 0, -1)
	s.ask("ZRANGE", "cd|evt:readings:3", 0, -1, "WITHSCORES")
	s.ask("ZUNIONSTORE", "cache", 2, "cd|evt:origin", "cd|evt:none", "WEIGHTS", 1, 0)
	s.ask("ZCOUNT", "cache", start, start+9000000)
	s.ask("ZREVRANGEBYSCORE", "cache", start+9000000, start, "LIMIT", 0, -1)
	s.ask("UNLINK", "cache")
	for i := 0; i < 2; i++ {
		event := fmt.Sprintf("cd|evt:%d", i)
		s.together(
			redis.Args{"UNLINK", event},
			redis.Args{"UNLINK", "cd|evt:readings:" + fmt.Sprint(i)},
			redis.Args{"ZREM", "cd|evt", event},
			redis.Args{"ZREM", "cd|evt:origin", event},
			redis.Args{"ZREM", "cd|evt:device:name:pump", event},
		)
	}
	s.ask("ZCARD", "cd|evt")
}

// keeper keeps a tree of settings: a hash for each level, whose fields name the keys below.
func (s services) keeper() {
	s.ask("TYPE", "kp|kv:core:level")
	s.together(
		redis.Args{"HSETNX", "kp|kv:core", "level", "kp|kv:core:level"},
		redis.Args{"HSETNX", "kp|kv", "core", "kp|kv:core"},
		redis.Args{"HSET", "kp|kv:core", "port", "kp|kv:core:port"},
		redis.Args{"SET", "kp|kv:core:level", `{"value":"SU5GTw=="}`},
		redis.Args{"SET", "kp|kv:core:port", `{"value":"ODA="}`},
	)
	for _, key := range []string{"kp|kv", "kp|kv:core", "kp|kv:core:level", "kp|kv:none"} {
		s.ask("TYPE", key)
	}
	fields, err := redis.StringMap(s.conn.Do("HGETALL", "kp|kv:core"))
	names := []string{}
	for name, value := range fields {
		names = append(names, name+"="+value)
	}
	sort.Strings(names)
	fmt.Println("HGETALL", names, err)
	s.ask("GET", "kp|kv:core:level")
	s.ask("SADD", "kp|reg", "core-data", "core-metadata")
	s.ask("SREM", "kp|reg", "core-data", "none")
	s.ask("DEL", "kp|kv:core:level")
	s.ask("HDEL", "kp|kv:core", "level")
	s.ask("HLEN", "kp|kv:core")
	s.ask("GET", "kp|kv:core")
}

func edgeX(address string) error {
	conn, err := redis.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := services{conn}
	s.ask("FLUSHDB")
	s.metadata()
	s.events()
	s.keeper()
	memory, err := redis.Int64(conn.Do("MEMORY", "USAGE", "md|dv:valve-id"))
	fmt.Println("MEMORY USAGE", memory > 0, err)
	info, err := redis.String(conn.Do("INFO", "memory"))
	fmt.Println("INFO memory", len(info) > 0, err)
	return nil
}
