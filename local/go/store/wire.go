package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// What the gateway must know of MongoDB's wire protocol: where a message ends and whether it is
// answered. See MongoDB's documentation of the wire protocol, OP_MSG.
const (
	headerBytes     = 16
	maxMessageBytes = 48_000_000
	opQuery         = 2004
	opMsg           = 2013

	flagMoreToCome = 1 << 1
)

var errProtocol = errors.New("breach of the wire protocol")

// message is one whole message, header included.
type message []byte

func readMessage(r io.Reader) (message, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size < headerBytes+5 || size > maxMessageBytes {
		return nil, fmt.Errorf("%w: a message of %d bytes", errProtocol, size)
	}
	whole := make(message, size)
	copy(whole, header[:])
	if _, err := io.ReadFull(r, whole[headerBytes:]); err != nil {
		return nil, fmt.Errorf("%w: message cut short: %w", errProtocol, err)
	}
	return whole, nil
}

func (m message) opcode() uint32 { return binary.LittleEndian.Uint32(m[12:]) }

// moreToCome tells of a request that it is not answered, of a reply that another one follows.
func (m message) moreToCome() bool {
	return m.opcode() == opMsg && binary.LittleEndian.Uint32(m[headerBytes:])&flagMoreToCome != 0
}

// isHello tells whether drivers ask what server this is, by which they also watch that it lives.
// OP_QUERY serves nothing else.
func (m message) isHello() bool {
	const kind, name = headerBytes + 4, headerBytes + 4 + 1 + 4 + 1
	if m.opcode() == opQuery {
		return true
	}
	if m.moreToCome() || len(m) <= name || m[kind] != 0 {
		return false
	}
	switch command, _, _ := bytes.Cut(m[name:], []byte{0}); string(command) {
	case "hello", "isMaster", "ismaster":
		return true
	}
	return false
}

// checkRequest refuses what would not be answered by exactly one reply without saying so.
func (m message) checkRequest() error {
	if code := m.opcode(); code != opMsg && code != opQuery {
		return fmt.Errorf("%w: opcode %d", errProtocol, code)
	}
	return nil
}

func ping() message { return command("ping") }

// command is {name: 1, $db: "admin"}.
func command(name string) message {
	document := []byte("\x10" + name + "\x00\x01\x00\x00\x00\x02$db\x00\x06\x00\x00\x00admin\x00\x00")
	body := make([]byte, 0, 64)
	body = binary.LittleEndian.AppendUint32(body, uint32(4+len(document)))
	body = append(body, document...)
	m := make(message, 0, 96)
	m = binary.LittleEndian.AppendUint32(m, uint32(headerBytes+4+1+len(body)))
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, 0)
	m = binary.LittleEndian.AppendUint32(m, opMsg)
	m = binary.LittleEndian.AppendUint32(m, 0)
	m = append(m, 0)
	return append(m, body...)
}
