package consumerstate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-broker/penstock/durable"
)

// linkFor is how long a link revives.
const linkFor = 7 * 24 * time.Hour

// linkSecret is the name of the key of links in the store.
const linkSecret = "revive"

// ErrLink means that a link revives nothing: it is not ours, expired, or used.
var ErrLink = errors.New("consumerstate: the link is not valid")

// AlertLink returns the link that revives the consumer of an alert, or an empty text where the
// brokers have no public address. The link expires linkFor after the transition, and works once:
// it names the time of the state, which changes. It is the same whenever it is made.
func (p *Keeper) AlertLink(ctx context.Context, a *durable.Alert) (string, error) {
	if p.o.PublicURL == "" {
		return "", nil
	}
	key, err := p.linkKey(ctx)
	if err != nil {
		return "", err
	}
	seen := durable.Consumer{No: a.ConsumerNo, StateMs: a.AtMs}
	return p.o.PublicURL + "/channel/" + a.ChannelID + "/consumer/" + a.ConsumerID + "/revive/" +
		token(key, &seen, a.AtMs+linkFor.Milliseconds()), nil
}

// CheckLink returns nil if the token of a link would revive the consumer now.
func (p *Keeper) CheckLink(ctx context.Context, k *durable.Consumer, text string) error {
	key, err := p.linkKey(ctx)
	if err != nil {
		return err
	}
	stamp, _, _ := strings.Cut(text, ".")
	expires, err := strconv.ParseInt(stamp, 36, 64)
	revivable := k.State == durable.StateDead || k.State == durable.StateGone
	if err != nil || !hmac.Equal([]byte(token(key, k, expires)), []byte(text)) || expires < p.o.NowMs() || !revivable {
		return ErrLink
	}
	return nil
}

// ReviveByLink revives the consumer with the token of a link.
func (p *Keeper) ReviveByLink(ctx context.Context, k *durable.Consumer, text string) (durable.Consumer, error) {
	if err := p.CheckLink(ctx, k, text); err != nil {
		return durable.Consumer{}, err
	}
	return p.revive(ctx, k, k.StateMs)
}

// token is the expiry and the signature over it, the consumer and the time of its state.
func token(key []byte, k *durable.Consumer, expires int64) string {
	mac := hmac.New(sha256.New, key)
	var b []byte
	b = binary.BigEndian.AppendUint32(b, k.No)
	b = binary.BigEndian.AppendUint64(b, uint64(k.StateMs))
	b = binary.BigEndian.AppendUint64(b, uint64(expires))
	mac.Write(b)
	return strconv.FormatInt(expires, 36) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (p *Keeper) linkKey(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	key := p.key
	p.mu.Unlock()
	if key != nil {
		return key, nil
	}
	key, err := p.o.Store.Secret(ctx, linkSecret)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.key = key
	p.mu.Unlock()
	return key, nil
}
