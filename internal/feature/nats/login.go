package nats

import (
	"encoding/base64"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/penstock-broker/penstock/internal/model/policy"
)

// A login is the credentials of a connection, as CONNECT has them. The zero login is none.
type login struct {
	User     string `json:"user,omitempty"`
	Password string `json:"pass,omitempty"`
	Token    string `json:"auth_token,omitempty"`
	JWT      string `json:"jwt,omitempty"`
	Key      string `json:"nkey,omitempty"`
	Signed   string `json:"sig,omitempty"` // the nonce of the server

	seed string
}

// errLogin does not quote the credentials.
var errLogin = &policy.FieldError{Field: "authorization", Problem: "must be basic user:password, bearer TOKEN, " +
	"nkey SEED or jwt JWT SEED for a callbackUrl of NATS"}

// loginOf reads the credentials of a policy. The error is a *policy.FieldError.
func loginOf(a policy.Authorization) (l login, err error) {
	if a == "" {
		return login{}, nil
	}
	scheme, rest, _ := strings.Cut(string(a), " ")
	switch strings.ToLower(scheme) {
	case "basic":
		if !strings.Contains(rest, ":") { // user:password in base64, as policies take it
			text, err := base64.StdEncoding.DecodeString(rest)
			if err != nil {
				return login{}, errLogin
			}
			rest = string(text)
		}
		l.User, l.Password, _ = strings.Cut(rest, ":")
		return l, nil
	case "bearer":
		return login{Token: rest}, nil
	case "nkey":
		l.seed = rest
	case "jwt":
		l.JWT, l.seed, _ = strings.Cut(rest, " ")
	default:
		return login{}, errLogin
	}
	pair, err := nkeys.FromSeed([]byte(l.seed))
	if err != nil {
		return login{}, errLogin
	}
	defer pair.Wipe()
	key, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(key) {
		return login{}, errLogin
	}
	if l.JWT == "" {
		l.Key = key
	}
	return l, nil
}

// sign signs the nonce of a server where the credentials are a key.
func (l *login) sign(nonce string) error {
	if l.seed == "" {
		return nil
	}
	pair, err := nkeys.FromSeed([]byte(l.seed))
	if err != nil {
		return errLogin
	}
	defer pair.Wipe()
	signed, err := pair.Sign([]byte(nonce))
	if err != nil {
		return errLogin
	}
	l.Signed = base64.RawURLEncoding.EncodeToString(signed)
	return nil
}
