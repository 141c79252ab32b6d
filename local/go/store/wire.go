package main

import (
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

// checkRequest refuses what would not be answered by exactly one reply without saying so.
func (m message) checkRequest() error {
	if code := m.opcode(); code != opMsg && code != opQuery {
		return fmt.Errorf("%w: opcode %d", errProtocol, code)
	}
	return nil
}

// ping is the command {ping: 1, $db: "admin"}.
func ping() message {
	document := []byte("\x10ping\x00\x01\x00\x00\x00\x02$db\x00\x06\x00\x00\x00admin\x00\x00")
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
