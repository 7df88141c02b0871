// An instance of a member in the Go reference, for pcg.py: does nothing with a message but acknowledge it.
//
// Handles so many messages and prints how many a second that were; with 0, prints the time of every message and takes
// 10 ms for it, for ever.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

func main() {
	url, stream, group, member := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	connection, err := nats.Connect(url)
	check(err)
	js, err := jetstream.New(connection)
	check(err)
	handled, done := 0, make(chan time.Duration)
	var began time.Time
	handle := func(message jetstream.Msg) {
		if count == 0 {
			fmt.Println(time.Now().UnixNano())
			time.Sleep(10 * time.Millisecond)
		} else if handled == 0 {
			began = time.Now()
		} else if handled == count-1 {
			done <- time.Since(began)
		}
		handled++
		check(message.Ack())
	}
	// The least ack wait that it takes.
	config := jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: 6 * time.Second, AckPolicy: jetstream.AckExplicitPolicy}
	_, err = pcgroups.StaticConsume(context.Background(), js, stream, group, member, handle, config)
	check(err)
	fmt.Println(float64(count-1) / (<-done).Seconds())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
