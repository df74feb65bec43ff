package preflight

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-broker/penstock/internal/tool/sentence"
	"github.com/penstock-broker/penstock/redisq"
)

func queue(ctx context.Context, r *Report, o Options) {
	if o.RedisURL == "" {
		r.add("redis", OK, "the embedded one, in the process of the broker: what is in it is made again from the store")
		return
	}
	client, err := redisq.Dial(ctx, redisq.ConnectOptions{URL: o.RedisURL, Master: o.RedisMaster, Timeout: o.Timeout})
	if err == nil {
		defer client.Close()
		err = client.Ping(ctx).Err()
	}
	if err != nil {
		// A broker starts without Redis, and delivers when it is there. One that refuses it stops it.
		r.add("redis", Unreachable, "BROKER_REDIS_URL: %v: start the server, or correct address, user and password",
			sentence.Of(err)).Stops = !redisq.Away(err)
		return
	}
	r.add("redis", OK, "it answers")
	servers, err := redisq.Servers(ctx, client)
	if err != nil {
		r.add("redis.version", Note, "not every server says its version and its memory settings: %v", sentence.Of(err))
	}
	for _, s := range servers {
		redisServer(r, s)
	}
	redisClock(ctx, r, client)
	redisRights(ctx, r, client)
}

func redisServer(r *Report, s redisq.Server) {
	at := ""
	if s.Addr != "" {
		at = s.Addr + ": "
	}
	if err := s.TooOld(); err != nil {
		r.stops("redis.version", Mend, "%s%v", at, sentence.Of(err))
	} else {
		r.add("redis.version", OK, "%sRedis %s", at, s.Version)
	}
	switch {
	case s.Evicts():
		r.stops("redis.memory", Mend, "%s%v", at, sentence.Of(s.Unfit()))
	case s.MayEvict():
		r.add("redis.memory", Mend, "%smaxmemory-policy is %s, which drops keys of the queue once there is a maxmemory: set "+
			"maxmemory-policy noeviction", at, s.Policy)
	case s.MaxMemory > 0:
		r.add("redis.memory", OK, "%sat most %d bytes, and a full Redis refuses", at, s.MaxMemory)
	default:
		r.add("redis.memory", OK, "%sno maxmemory", at)
	}
	switch {
	case s.Refuses != "":
		r.add("redis.persistence", Mend, "%sRedis may refuse writes, because %s: look at its log and the room on its disk",
			at, s.Refuses)
	case s.AOF:
		r.add("redis.persistence", OK, "%sit keeps an append-only file", at)
	default:
		r.add("redis.persistence", OK, "%sno append-only file: after a restart of Redis the brokers make the queue again "+
			"from the store; nothing is lost", at)
	}
}

func redisClock(ctx context.Context, r *Report, client redis.UniversalClient) {
	ahead, err := redisq.AskClock(ctx, client)
	if err != nil {
		r.add("redis.clock", Note, "it was not told: %v", sentence.Of(err))
		return
	}
	clock(r, "redis.clock", "Redis", ahead.Round(time.Microsecond))
}

func redisRights(ctx context.Context, r *Report, client redis.UniversalClient) {
	missing, known, err := redisq.MissingRights(ctx, client)
	switch {
	case err != nil:
		r.add("redis.rights", Note, "they could not be asked for: %v", sentence.Of(err))
	case !known:
		r.add("redis.rights", Note, "a Redis before 7.0 does not say them; docs/settings-together.md has the rules of a user")
	case len(missing) > 0:
		r.add("redis.rights", Mend, "the user may not use %s on the keys and the channel of the brokers: "+
			"ACL SETUSER NAME %s", strings.Join(missing, ", "), strings.Join(redisq.Rights(), " "))
	default:
		r.add("redis.rights", OK, "each command that a broker needs")
	}
}
