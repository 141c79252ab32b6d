package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const bufferBytes = 1 << 16

// gateway passes one command at a time to a backend whose commands are not atomic by themselves.
//
// The turn is held only while the backend works: a whole request is read before it is taken and
// the reply is written after it is given back, so that a slow client keeps nobody waiting.
type gateway struct {
	socket  string
	timeout time.Duration
	turn    sync.Mutex
}

// backend is one connection to the backend.
type backend struct {
	conn   net.Conn
	reader *bufio.Reader
}

func (g *gateway) dial(ctx context.Context) (*backend, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", g.socket)
	if err != nil {
		return nil, err
	}
	return &backend{conn: conn, reader: bufio.NewReaderSize(conn, bufferBytes)}, nil
}

// exchange sends one request and returns its reply, or nil for a request that has none.
func (g *gateway) exchange(b *backend, request message) (message, error) {
	g.turn.Lock()
	defer g.turn.Unlock()
	if err := b.conn.SetDeadline(time.Now().Add(g.timeout)); err != nil {
		return nil, err
	}
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
		return nil, errors.Join(errProtocol, errors.New("the backend streams replies"))
	}
	return reply, err
}

func (g *gateway) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	b, err := g.dial(ctx)
	if err != nil {
		slog.Error("backend refuses connections", "error", err)
		return
	}
	defer b.conn.Close()
	reader := bufio.NewReaderSize(client, bufferBytes)
	for {
		if err := g.pass(reader, client, b); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				slog.Warn("connection closed", "client", client.RemoteAddr().String(), "error", err)
			}
			return
		}
	}
}

func (g *gateway) pass(from io.Reader, client net.Conn, b *backend) error {
	request, err := readMessage(from)
	if err != nil {
		return err
	}
	if err := request.checkRequest(); err != nil {
		return err
	}
	reply, err := g.exchange(b, request)
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
	defer b.conn.Close()
	_, err = g.exchange(b, ping())
	return err
}

// listen serves clients until the context ends, then closes their connections.
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
		stop := context.AfterFunc(ctx, func() { client.Close() })
		go func() {
			defer clients.Done()
			defer stop()
			g.serve(ctx, client)
		}()
	}
}
