package share

import (
	"encoding/binary"
	"hash/maphash"
	"net"
	"net/netip"
)

// A Key names who uses a bound. Keys of different kinds differ.
type Key struct {
	kind byte
	no   uint64
}

const (
	producer byte = iota + 1
	consumer
	channel
	host
	address
	management
	token
	broker
)

// Producer is the key of a producer, by its number in the store.
func Producer(no uint32) Key { return Key{producer, uint64(no)} }

// Consumer is the key of a consumer, by its number in the store.
func Consumer(no uint32) Key { return Key{consumer, uint64(no)} }

// Channel is the key of a channel, by its number in the store.
func Channel(no uint32) Key { return Key{channel, uint64(no)} }

var seed = maphash.MakeSeed()

// Token is the key of an API token or of a client certificate, by the name that the audit log has of it. Who has
// one may own a single consumer, so it has no part of the reserve but for small takes.
func Token(who string) Key { return Key{token, maphash.String(seed, who)} }

// Broker is the key of the broker's own work: what it repairs, replays and forwards.
var Broker = Key{kind: broker}

// Host is the key of a host that the broker calls, as host:port in lower case.
func Host(name string) Key { return Key{host, maphash.String(seed, name)} }

// Address is the key of a client: its IPv4 address, or the /64 of its IPv6 address, which is what
// one customer of a network gets.
func Address(a netip.Addr) Key { return Key{address, number(a)} }

// Management is the key of a management request from an address. It may use the reserve of a bound
// whatever its size.
func Management(a netip.Addr) Key { return Key{management, number(a)} }

func number(a netip.Addr) uint64 {
	a = a.Unmap()
	if a.Is4() {
		four := a.As4()
		return uint64(binary.BigEndian.Uint32(four[:]))
	}
	sixteen := a.As16()
	return maphash.Bytes(seed, sixteen[:8])
}

// AddressOf returns the address of a connection's other end; the zero Addr if it has none, as in
// memory.
func AddressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		ip, _ := netip.AddrFromSlice(tcp.IP)
		return ip.Unmap()
	}
	return netip.Addr{}
}
