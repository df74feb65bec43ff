package apitype

// A TokenRequest asks for an API token.
type TokenRequest struct {
	Name    string   `json:"Name"`              // for people; 1 to 255 characters
	Scopes  []string `json:"Scopes"`            // 1 to 20 words as channel:orders
	Expires string   `json:"Expires,omitempty"` // how long it lasts, as 24h; without it for ever
}

// A NewToken is an API token that was made. Nothing shows the token again.
type NewToken struct {
	ListedToken
	Token string `json:"Token"`
}

// A ListedToken is an API token as a list shows it.
type ListedToken struct {
	ID         string   `json:"ID"`
	Name       string   `json:"Name"`
	Scopes     []string `json:"Scopes"`
	CreatedAt  Time     `json:"CreatedAt"`
	ExpiresAt  *Time    `json:"ExpiresAt,omitempty"`  // absent: it has no end
	LastUsedAt *Time    `json:"LastUsedAt,omitempty"` // within a minute; absent: not yet
	Expired    bool     `json:"Expired,omitempty"`
	Refused    string   `json:"Refused,omitempty"` // why this broker takes the token no more; absent: it does
}

// A TokenList is a page of the API tokens, by their IDs.
type TokenList struct {
	Result []ListedToken `json:"Result"` // never null
	Pages  Pages         `json:"Pages"`
}

// A RotateForm asks for a new token of a resource.
type RotateForm struct {
	Overlap string `form:"overlap"` // how long the present token stays valid, as 24h; without it not at all
}

// A RotatedToken is the answer to it.
type RotatedToken struct {
	Token        string `json:"Token"`
	FormerEndsAt *Time  `json:"FormerEndsAt,omitempty"` // until when the token before it is valid; absent: it is not
}
