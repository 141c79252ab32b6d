package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const bufferBytes = 1 << 16

// gateway passes one command at a time to a backend whose commands are not atomic by themselves.
// Only hello, which touches no data, waits for no turn: drivers watch the server by it, and cancel
// all that is under way when it is not answered in time.
//
// The turn is held only while the backend works: a whole request is read before it is taken and
// the reply is written after it is given back, so that a slow client keeps nobody waiting. It is
// held for as long as the backend works, even when the client was sent away at the deadline:
// otherwise the next command would run beside one that has not ended.
type gateway struct {
	socket  string
	timeout time.Duration
	turn    chan struct{}
}

func newGateway(socket string, timeout time.Duration) *gateway {
	return &gateway{socket: socket, timeout: timeout, turn: make(chan struct{}, 1)}
}

// backend is one connection to the backend; asking is locked while it works on a request.
type backend struct {
	conn   net.Conn
	reader *bufio.Reader
	asking sync.Mutex
}

func (g *gateway) dial(ctx context.Context) (*backend, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", g.socket)
	if err != nil {
		return nil, err
	}
	return &backend{conn: conn, reader: bufio.NewReaderSize(conn, bufferBytes)}, nil
}

// close closes the connection once the backend has ended what it works on.
func (b *backend) close() {
	go func() {
		b.asking.Lock()
		defer b.asking.Unlock()
		b.conn.Close()
	}()
}

// ask sends one request and returns its reply, or nil for a request that has none.
func (b *backend) ask(request message) (message, error) {
	b.asking.Lock()
	defer b.asking.Unlock()
	if _, err := b.conn.Write(request); err != nil {
		return nil, err
	}
	if request.moreToCome() {
		// The backend answers nothing, so its end cannot be seen from outside: a ping on the same
		// connection is worked on after it and is answered when it is done.
		if _, err := b.conn.Write(ping()); err != nil {
			return nil, err
		}
		_, err := readMessage(b.reader)
		return nil, err
	}
	reply, err := readMessage(b.reader)
	if err == nil && reply.moreToCome() {
		return nil, fmt.Errorf("%w: the backend streams replies", errProtocol)
	}
	return reply, err
}

// takeTurn waits until no other command is at work, or until the context ends.
func (g *gateway) takeTurn(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Of two cases that are both ready either is taken.
	if err := ctx.Err(); err != nil {
		<-g.turn
		return err
	}
	return nil
}

// exchange waits for the turn, asks the backend, and waits no longer than the deadline of a command;
// one that was begun is not broken off by the end of the context.
func (g *gateway) exchange(ctx context.Context, b *backend, request message) (message, error) {
	inTurn := !request.isHello()
	if inTurn {
		if err := g.takeTurn(ctx); err != nil {
			return nil, err
		}
	}
	type answer struct {
		reply message
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		reply, err := b.ask(request)
		if inTurn {
			<-g.turn
		}
		answered <- answer{reply, err}
	}()
	deadline := time.NewTimer(g.timeout)
	defer deadline.Stop()
	select {
	case got := <-answered:
		return got.reply, got.err
	case <-deadline.C:
		return nil, fmt.Errorf("the backend did not answer within %s", g.timeout)
	}
}

func (g *gateway) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	b, err := g.dial(ctx)
	if err != nil {
		slog.Error("backend refuses connections", "error", err)
		return
	}
	defer b.close()
	reader := bufio.NewReaderSize(client, bufferBytes)
	for ctx.Err() == nil {
		if err := g.pass(ctx, reader, client, b); err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				slog.Warn("connection closed", "client", client.RemoteAddr().String(), "error", err)
			}
			return
		}
	}
}

func (g *gateway) pass(ctx context.Context, from io.Reader, client net.Conn, b *backend) error {
	request, err := readMessage(from)
	if err != nil {
		return err
	}
	if err := request.checkRequest(); err != nil {
		return err
	}
	// When this program is to end, what waits for its turn is not begun: its client sends it again.
	reply, err := g.exchange(ctx, b, request)
	if err != nil || reply == nil {
		return err
	}
	if err := client.SetWriteDeadline(time.Now().Add(g.timeout)); err != nil {
		return err
	}
	_, err = client.Write(reply)
	return err
}

// check asks the backend for a sign of life.
func (g *gateway) check(ctx context.Context) error {
	b, err := g.dial(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	_, err = g.exchange(ctx, b, ping())
	return err
}

// listen serves clients until the context ends; the command at work is then still answered.
func (g *gateway) listen(ctx context.Context, listener net.Listener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		client, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		clients.Add(1)
		stop := context.AfterFunc(ctx, func() { client.SetReadDeadline(time.Now()) })
		go func() {
			defer clients.Done()
			defer stop()
			g.serve(ctx, client)
		}()
	}
}
