// The embedded document store: FerretDB on SQLite behind a gateway that passes one command at a
// time, because FerretDB's findAndModify reads and then writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/FerretDB/FerretDB/ferretdb"
)

const (
	healthTimeout = 5 * time.Second
	startTimeout  = 30 * time.Second
	startInterval = 20 * time.Millisecond
	// What stays in memory is a few megabytes, and each document that is read makes rubbish.
	garbagePercent = 400
)

type options struct {
	listen, stateDir, socketDir, healthListen, sync string
	commandTimeout                                  time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:27017", "address of the MongoDB protocol")
	flag.StringVar(&o.stateDir, "state-dir", "data", "folder of the database files")
	flag.StringVar(&o.sync, "sync", "normal",
		"normal: acknowledged writes outlive a killed process; full: a power cut, too, at a third of the speed")
	flag.StringVar(&o.socketDir, "socket-dir", os.TempDir(), "writable folder for a Unix socket")
	flag.StringVar(&o.healthListen, "health-listen", "", "address of GET /healthz; empty: none")
	flag.DurationVar(&o.commandTimeout, "command-timeout", time.Minute, "longest time of one command")
	flag.Parse()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ready := func(address string) { slog.Info("ready", "listen", address, "state", o.stateDir) }
	if err := run(ctx, o, ready); err != nil {
		slog.Error("store stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until the context ends; it calls ready with the address once commands are answered.
func run(ctx context.Context, o options, ready func(string)) error {
	if o.sync != "normal" && o.sync != "full" {
		return fmt.Errorf("--sync=%s: must be normal or full", o.sync)
	}
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(o.socketDir, "store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "backend.sock")
	database, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{Unix: socket},
		Handler:  "sqlite",
		// It reports every connection, and each health check is one.
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		SQLiteURL: databaseURL(o.stateDir, o.sync),
	})
	if err != nil {
		return err
	}
	// The backend ends after the gateway, so that commands under way are answered.
	backendCtx, stopBackend := context.WithCancel(context.WithoutCancel(ctx))
	backendDone := make(chan struct{})
	var backendErr error
	go func() {
		defer close(backendDone)
		backendErr = database.Run(backendCtx)
	}()
	defer func() { stopBackend(); <-backendDone }()

	g := newGateway(socket, o.commandTimeout)
	if err := waitForBackend(ctx, g, backendDone); err != nil {
		stopBackend()
		<-backendDone
		return errors.Join(err, backendErr)
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	if o.healthListen != "" {
		stopHealth, err := serveHealth(g, o.healthListen)
		if err != nil {
			return err
		}
		defer stopHealth()
	}
	ready(listener.Addr().String())
	return g.listen(ctx, listener)
}

// databaseURL names SQLite's folder, and how each connection writes: with a log that a killed process
// leaves in order, because the kernel has all of it.
func databaseURL(folder, sync string) string {
	pragmas := []string{"busy_timeout(10000)", "journal_mode(wal)", "synchronous(" + sync + ")"}
	return fmt.Sprintf("file:%s/?%s", folder, url.Values{"_pragma": pragmas}.Encode())
}

func waitForBackend(ctx context.Context, g *gateway, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(startInterval)
	defer tick.Stop()
	for {
		err := g.check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return errors.New("the backend ended at its start")
		case <-ctx.Done():
			return fmt.Errorf("waited %s for the backend: %w", startTimeout, err)
		case <-tick.C:
		}
	}
}

func serveHealth(g *gateway, address string) (func(), error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		if err := g.check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: healthTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("health server ended", "error", err)
		}
	}()
	return func() { server.Close() }, nil
}
