package catalogue

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/apitoken"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/model/problem"
	"github.com/penstock-broker/penstock/internal/model/scope"
)

// A token of a resource is right when it equals the one in its record, which costs what it always did. Only a
// token that does not is compared further: with the one before a rotation, and, where it has the form of an API
// token, with the API tokens of the installation, all of which the copy has.

// Secrets are what a catalogue needs to compare tokens.
type Secrets struct {
	Keys  apitoken.Keys
	NowMs func() int64 // clock of the store, on which tokens end; nil: that of this machine
	// Certified are the grants of client certificates, by ID.
	Certified map[string]*Grant
}

// UseSecrets sets them. It is called before the first request.
func (c *Catalogue) UseSecrets(s Secrets) { c.secrets = s }

// CertifiedGrant returns the grant of client certificates with a subject. The token is of this process alone.
func CertifiedGrant(id, subject, token string, scopes scope.Set) *Grant {
	return &Grant{ID: id, Name: subject, Scopes: scopes, certified: true, until: never, used: new(atomic.Int64),
		digest: apitoken.Keys{}.Digest([]byte(token))}
}

func (c *Catalogue) now() int64 {
	if c.secrets.NowMs != nil {
		return c.secrets.NowMs()
	}
	return time.Now().UnixMilli()
}

// A Grant is an API token as the copy has it. It is immutable, but for the time of its last use.
type Grant struct {
	ID      string
	Name    string
	Scopes  scope.Set
	digest  apitoken.Digest
	until   int64 // Unix ms, never if it has no end
	version int64
	used    *atomic.Int64 // Unix ms of the last use at this broker, shared with the grants before it

	certified bool // it is that of a client certificate, and Name is the subject
}

// Who says in the audit log whose grant it is.
func (g *Grant) Who() string {
	if g.certified {
		return "certificate " + g.Name
	}
	return "API token " + g.ID
}

// What says of which kind it is, for people.
func (g *Grant) What() string {
	if g.certified {
		return "client certificate"
	}
	return "API token"
}

// ErrAPIToken refuses an API token that is none, or no longer.
var ErrAPIToken = problem.New(403, "api_token_mismatch",
	"The API token is none of this broker: it is mistyped, was ended or has expired. GET /tokens lists those there "+
		"are.").
	OfToken()

// never is the end of what has none.
const never = math.MaxInt64

// takeTokens replaces the API tokens of the copy, with mu held, if one has changed. A row that this version cannot
// read opens nothing.
func (c *Catalogue) takeTokens(changes durable.Changes) {
	if !changes.NewTokens {
		return
	}
	rows := changes.Tokens
	before, grants := c.grantsByID(), map[string]*Grant{}
	var unread, foreign int
	for i := range rows {
		t := &rows[i]
		g := &Grant{ID: t.ID, Name: t.Name, until: never, version: t.Version, used: new(atomic.Int64)}
		if t.ExpiresMs > 0 {
			g.until = t.ExpiresMs
		}
		var err error
		if g.Scopes, err = scope.ParseSet(strings.Fields(t.Scopes)); err != nil {
			unread++
			g.Scopes = nil
		}
		g.digest.KeyID = t.KeyID
		copy(g.digest.Sum[:], t.Digest)
		if !c.secrets.Keys.Knows(t.KeyID) {
			foreign++
		}
		g.used.Store(t.UsedMs)
		if old := before[t.ID]; old != nil {
			g.used = old.used
		}
		grants[t.ID] = g
	}
	if unread+foreign > 0 {
		c.log.Warn("the broker refuses API tokens that have a scope of another version, or that were made with another "+
			"BROKER_TOKEN_KEY", "scope", unread, "key", foreign)
	}
	c.grants.Store(&grants)
}

func (c *Catalogue) grantsByID() map[string]*Grant {
	if all := c.grants.Load(); all != nil {
		return *all
	}
	return nil
}

// grant returns the grant of an API token, nil where the text is none that lasts. It takes no lock.
func (c *Catalogue) grant(token []byte) *Grant {
	if !apitoken.Is(token) {
		return nil
	}
	id, ok := apitoken.ID(token)
	if !ok {
		return nil
	}
	g := c.lookup(id)
	if g == nil {
		return nil // the clock is not asked
	}
	now := c.now()
	if now >= g.until || !c.secrets.Keys.Matches(token, g.digest) {
		return nil
	}
	g.used.Store(now)
	return g
}

// lookup returns the grant of an ID, with an end or not.
func (c *Catalogue) lookup(id []byte) *Grant {
	if g := c.secrets.Certified[string(id)]; g != nil {
		return g
	}
	return c.grantsByID()[string(id)]
}

// Grant returns the grant of an API token. ErrAPIToken: there is none that lasts. Other errors are those of a store
// that did not answer.
func (c *Catalogue) Grant(ctx context.Context, token []byte) (*Grant, error) {
	if g := c.grant(token); g != nil {
		return g, nil
	}
	if _, ok := apitoken.ID(token); !ok {
		return nil, ErrAPIToken
	}
	if err := c.refreshFor(ctx); err != nil { // another broker may have made it
		return nil, err
	}
	if g := c.grant(token); g != nil {
		return g, nil
	}
	return nil, ErrAPIToken
}

// GrantByID returns the grant of an ID while it lasts, for what was begun with its token; nil: it has ended.
func (c *Catalogue) GrantByID(id string) *Grant {
	g := c.lookup([]byte(id))
	if g == nil || c.now() >= g.until {
		return nil
	}
	return g
}

// Version tells grants of one ID apart: a restored backup may have another one.
func (g *Grant) Version() int64 { return g.version }

// Until returns when the grant ends. ok: it does.
func (g *Grant) Until() (at time.Time, ok bool) { return time.UnixMilli(g.until), g.until != never }

// UsedMs is when this broker, or one before it, last took the token; 0: not yet.
func (g *Grant) UsedMs() int64 { return g.used.Load() }

// UsedSince returns when the tokens that were used after a time were last used at this broker, by their IDs.
func (c *Catalogue) UsedSince(ms int64) map[string]int64 {
	var used map[string]int64
	for id, g := range c.grantsByID() {
		if at := g.UsedMs(); at > ms {
			if used == nil {
				used = map[string]int64{}
			}
			used[id] = at
		}
	}
	return used
}

// A proof is what a token that was sent was equal to. The zero value proves nothing.
type proof struct {
	token string // of a record: its token, or the one before a rotation
	until int64  // 0: without an end
	grant *Grant
}

// end is when the proof ends by itself.
func (p *proof) end() int64 {
	switch {
	case p.grant != nil:
		return p.grant.until
	case p.until != 0:
		return p.until
	}
	return never
}

// prove compares a token with those of a record.
func (c *Catalogue) prove(presented []byte, token string, former *durable.Former) (proof, bool) {
	if TokenMatches(presented, token) {
		return proof{token: token}, true
	}
	if former.FormerToken != "" && c.now() < former.FormerUntilMs && TokenMatches(presented, former.FormerToken) {
		return proof{token: former.FormerToken, until: former.FormerUntilMs}, true
	}
	return proof{}, false
}

// proveChannel compares what stands for the token of a channel, beside that of an owner: the consumer, where one is
// named.
func (c *Catalogue) proveChannel(presented []byte, ch *Channel, consumer string) (proof, bool) {
	if p, ok := c.prove(presented, ch.Token, &ch.Former); ok {
		return p, true
	}
	g := c.grant(presented)
	return proof{grant: g}, g != nil && g.Scopes.StandsForChannel(ch.place(consumer))
}

// proveConsumer compares what stands for the token of a consumer.
func (c *Catalogue) proveConsumer(presented []byte, ch *Channel, k *durable.Consumer) (proof, bool) {
	if p, ok := c.prove(presented, k.Token, &k.Former); ok {
		return p, true
	}
	g := c.grant(presented)
	return proof{grant: g}, g != nil && g.Scopes.StandsForConsumer(ch.place(k.ID))
}

// ConsumerTokenMatches reports whether a token is that of a consumer, or stands for it.
func (c *Catalogue) ConsumerTokenMatches(presented []byte, ch *Channel, k *durable.Consumer) bool {
	_, ok := c.proveConsumer(presented, ch, k)
	return ok
}

// ChannelTokenMatches reports whether a token is that of a channel, or stands for it beside that of a consumer.
func (c *Catalogue) ChannelTokenMatches(presented []byte, ch *Channel) bool {
	_, ok := c.proveChannel(presented, ch, "")
	return ok
}

// ProducerTokenMatches reports whether a token is that of a producer.
func (c *Catalogue) ProducerTokenMatches(presented []byte, p *durable.Producer) bool {
	_, ok := c.prove(presented, p.Token, &p.Former)
	return ok
}

// place is the channel, and a consumer of it or "", as scopes see it.
func (ch *Channel) place(consumer string) scope.Place {
	return scope.Place{Channel: ch.ID, Group: ch.Group, Consumer: consumer}
}

// stillChannel reports whether a proof of proveChannel still is one, with the channel as it is now.
func (c *Catalogue) stillChannel(by proof, ch *Channel, consumer string) bool {
	if by.grant != nil {
		return c.lasts(by.grant) && by.grant.Scopes.StandsForChannel(ch.place(consumer))
	}
	return c.still(by, ch.Token, &ch.Former)
}

// stillConsumer is stillChannel for proveConsumer.
func (c *Catalogue) stillConsumer(by proof, ch *Channel, k *durable.Consumer) bool {
	if by.grant != nil {
		return c.lasts(by.grant) && by.grant.Scopes.StandsForConsumer(ch.place(k.ID))
	}
	return c.still(by, k.Token, &k.Former)
}

// lasts reports whether a grant is there as it was.
func (c *Catalogue) lasts(g *Grant) bool {
	now := c.GrantByID(g.ID)
	return now != nil && now.digest == g.digest
}

// still reports whether a proof of prove still is one, with a record as it is now.
func (c *Catalogue) still(by proof, token string, former *durable.Former) bool {
	return by.token != "" && (atrest.Same(by.token, token) ||
		former.FormerToken != "" && c.now() < former.FormerUntilMs && atrest.Same(by.token, former.FormerToken))
}
