package apitype

// Settings are those of the broker that answers: the answer to GET /settings. None has a secret.
type Settings struct {
	Result []Setting `json:"Result"`
}

// A Setting is one variable of the environment of a broker.
type Setting struct {
	Name    string `json:"Name"`
	Value   string `json:"Value"`   // what counts, as the variable has it; "" of a secret, and where there is none
	Default string `json:"Default"` // as the page of settings has it
	Set     bool   `json:"Set"`     // the variable has a value
	Secret  bool   `json:"Secret"`
	Meaning string `json:"Meaning"`
}
