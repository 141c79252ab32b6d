package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const patience = 10 * time.Second

func request(flags uint32) message {
	m := bytes.Clone(ping())
	binary.LittleEndian.PutUint32(m[headerBytes:], flags)
	return m
}

// recorder is a backend that tells how many requests it works on at once.
type recorder struct {
	running, most, seen atomic.Int32
	work                func()
}

func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		m, err := readMessage(reader)
		if err != nil {
			return
		}
		r.most.Store(max(r.most.Load(), r.running.Add(1)))
		r.work()
		r.seen.Add(1)
		r.running.Add(-1)
		if !m.moreToCome() {
			conn.Write(m)
		}
	}
}

// behind lets the recorder serve until the test ends, and returns its socket.
func behind(t *testing.T, r *recorder) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return socket
}

// start runs a gateway before the recorder and returns its address.
func start(t *testing.T, r *recorder, timeout time.Duration) string {
	t.Helper()
	socket := behind(t, r)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- newGateway(socket, timeout).listen(ctx, front) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return front.Addr().String()
}

func connect(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func send(t *testing.T, conn net.Conn, m []byte) {
	t.Helper()
	if _, err := conn.Write(m); err != nil {
		t.Error(err)
	}
}

func receive(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := readMessage(conn); err != nil {
		t.Error(err)
	}
}

func TestCommandsPassOneAtATime(t *testing.T) {
	r := &recorder{work: func() { time.Sleep(100 * time.Microsecond) }}
	address := start(t, r, patience)
	var clients sync.WaitGroup
	for range 8 {
		conn := connect(t, address)
		clients.Go(func() {
			for range 50 {
				send(t, conn, request(0))
				receive(t, conn)
			}
		})
	}
	clients.Wait()
	if r.most.Load() != 1 || r.seen.Load() != 400 {
		t.Errorf("%d at once, %d in all", r.most.Load(), r.seen.Load())
	}
}

func TestASlowSenderKeepsNobodyWaiting(t *testing.T) {
	address := start(t, &recorder{work: func() {}}, patience)
	slow, quick := connect(t, address), connect(t, address)
	send(t, slow, request(0)[:20])
	send(t, quick, request(0))
	receive(t, quick)
	send(t, slow, request(0)[20:])
	receive(t, slow)
}

func TestAnUnacknowledgedWriteHasNoReplyAndIsAwaited(t *testing.T) {
	r := &recorder{work: func() {}}
	conn := connect(t, start(t, r, patience))
	send(t, conn, request(flagMoreToCome))
	send(t, conn, request(0))
	receive(t, conn)
	// The write, the ping behind it, and the command.
	if r.seen.Load() != 3 {
		t.Errorf("the backend saw %d requests", r.seen.Load())
	}
	conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if m, err := readMessage(conn); err == nil {
		t.Errorf("a reply too many: %x", m)
	}
}

func TestPastTheDeadlineTheTurnStaysWithTheCommand(t *testing.T) {
	release := make(chan struct{})
	var first atomic.Bool
	r := &recorder{work: func() {
		if first.CompareAndSwap(false, true) {
			<-release
		}
	}}
	address := start(t, r, 50*time.Millisecond)
	stuck := connect(t, address)
	send(t, stuck, request(0))
	if _, err := stuck.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the client of a stuck command got %v", err)
	}
	next := connect(t, address)
	send(t, next, request(0))
	next.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := readMessage(next); err == nil {
		t.Fatal("a command ran beside one that had not ended")
	}
	close(release)
	next.SetReadDeadline(time.Now().Add(patience))
	receive(t, next)
	if r.most.Load() != 1 {
		t.Errorf("%d at once", r.most.Load())
	}
}

func TestAtTheEndNothingNewIsBegun(t *testing.T) {
	release, began := make(chan struct{}), make(chan struct{})
	r := &recorder{work: func() { close(began); <-release }}
	g := newGateway(behind(t, r), patience)
	ctx, end := context.WithCancel(context.Background())
	defer end()
	// What is written to a pipe has been read once Write returns.
	serve := func() net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { near.Close() })
		near.SetDeadline(time.Now().Add(patience))
		go g.serve(ctx, far)
		return near
	}
	atWork, waiting := serve(), serve()
	send(t, atWork, request(0))
	<-began
	send(t, waiting, request(0))
	end()
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client of a command that had no turn got %v", err)
	}
	close(release)
	receive(t, atWork)
	if r.seen.Load() != 1 {
		t.Errorf("the backend saw %d requests", r.seen.Load())
	}
}

func TestHelloWaitsForNoTurn(t *testing.T) {
	query := bytes.Clone(ping())
	binary.LittleEndian.PutUint32(query[12:], opQuery)
	for name, hello := range map[string]message{
		"hello": command("hello"), "isMaster": command("isMaster"), "ismaster": command("ismaster"),
		"OP_QUERY": query,
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			var first atomic.Bool
			r := &recorder{work: func() {
				if first.CompareAndSwap(false, true) {
					<-release
				}
			}}
			address := start(t, r, patience)
			slow, watching := connect(t, address), connect(t, address)
			send(t, slow, request(0))
			for !first.Load() {
				time.Sleep(time.Millisecond)
			}
			send(t, watching, hello)
			receive(t, watching)
			close(release)
			receive(t, slow)
		})
	}
}

func TestWhatOnlyBeginsLikeHelloWaits(t *testing.T) {
	for _, name := range []string{"helloAgain", "find", ""} {
		if command(name).isHello() {
			t.Errorf("%q is no hello", name)
		}
	}
	if message(ping()[:headerBytes+5]).isHello() {
		t.Error("a command without a name is no hello")
	}
}

func TestBreachesOfTheProtocolCloseTheConnection(t *testing.T) {
	header := func(size, opcode uint32) []byte {
		m := bytes.Clone(ping())
		binary.LittleEndian.PutUint32(m, size)
		binary.LittleEndian.PutUint32(m[12:], opcode)
		return m
	}
	size := uint32(len(ping()))
	for name, sent := range map[string][]byte{
		"too short":      header(15, opMsg),
		"too long":       header(maxMessageBytes+1, opMsg),
		"unknown opcode": header(size, 2002),
		"compressed":     header(size, 2012),
		"HTTP":           []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{work: func() {}}
			conn := connect(t, start(t, r, patience))
			send(t, conn, sent)
			var reset *net.OpError
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.As(err, &reset) {
				t.Errorf("got %v", err)
			}
			if r.seen.Load() != 0 {
				t.Error("it reached the backend")
			}
		})
	}
}

func TestAnUnknownSyncIsRefused(t *testing.T) {
	err := run(context.Background(), options{sync: "off"}, func(string) {})
	if err == nil || err.Error() != "--sync=off: must be normal or full" {
		t.Errorf("got %v", err)
	}
}

func TestStoreServesAndEndsOnRequest(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ended := make(chan error, 1)
	options := options{
		listen:         "127.0.0.1:0",
		stateDir:       filepath.Join(t.TempDir(), "made", "here"),
		socketDir:      t.TempDir(),
		sync:           "normal",
		commandTimeout: patience,
	}
	ready := make(chan string, 1)
	go func() { ended <- run(ctx, options, func(address string) { ready <- address }) }()
	select {
	case err := <-ended:
		t.Fatal(err)
	case address := <-ready:
		conn := connect(t, address)
		send(t, conn, ping())
		receive(t, conn)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
