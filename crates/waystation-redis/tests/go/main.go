// Clients of Redis against a server: `clients go-redis PORT` checks what go-redis does with it; `clients edgex PORT` gives
// the commands that an edge platform's services give through redigo, and prints the answers.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "clients go-redis|edgex PORT")
		os.Exit(2)
	}
	run, known := map[string]func(string) error{"go-redis": goRedis, "edgex": edgeX}[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "there is no client", os.Args[1])
		os.Exit(2)
	}
	if err := run("127.0.0.1:" + os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
