package redisq

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// commands are those that a broker sends, and those of its scripts, with arguments that name its keys.
// <key> is a key of a consumer, <channel> that of the hints.
var commands = []string{
	"ping", "info", "eval s 0", "evalsha s 0", "publish <channel> m", "subscribe <channel>", "time", "unlink <key>",
	"exists <key>", "hdel <key> f", "hget <key> f", "hgetall <key>", "hincrby <key> f 1", "hmget <key> f",
	"hset <key> f v", "hsetnx <key> f v", "pexpire <key> 1", "zadd <key> 1 m", "zcard <key>", "zcount <key> 0 1",
	"zmscore <key> m", "zpopmin <key>", "zrange <key> 0 1", "zrangebyscore <key> 0 1", "zrank <key> m", "zrem <key> m",
	"zscore <key> m",
}

// Rights returns the rules of ACL SETUSER that a broker needs, and no more.
func Rights() []string {
	rules := []string{"resetkeys", "~" + DefaultPrefix + "*", "resetchannels", "&" + hintChannel(DefaultPrefix), "-@all"}
	for _, c := range commands {
		name, _, _ := strings.Cut(c, " ")
		rules = append(rules, "+"+name)
	}
	return rules
}

// Each argument is a command with its arguments, separated by blanks. The reply has those that the user may not
// use; a Redis before 7.0 cannot say it: the reply is nil.
const askRights = `
if not redis.acl_check_cmd then return false end
local missing = {}
for i, line in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(line, '%S+') do words[#words + 1] = word end
  if not redis.acl_check_cmd(unpack(words)) then missing[#missing + 1] = words[1] end
end
return missing`

// MissingRights returns the commands that the user of a client may not use on the keys and the channel of
// the brokers. known is false where the Redis is too old to say it. Nothing is changed.
func MissingRights(ctx context.Context, client redis.UniversalClient) (missing []string, known bool, err error) {
	key := keysOf(DefaultPrefix, 0)[0]
	args := make([]any, len(commands))
	named := strings.NewReplacer("<key>", key, "<channel>", hintChannel(DefaultPrefix))
	for i, c := range commands {
		args[i] = named.Replace(c)
	}
	reply, err := client.Eval(ctx, askRights, []string{key}, args...).StringSlice()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, false, nil
	case redis.HasErrorPrefix(err, "NOPERM"):
		return []string{"eval"}, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("redisq: ask for the rights of the user: %w", err)
	}
	return reply, true, nil
}
