package apitype

// An SQSKey is an access key of SQS clients. Nothing shows its secret again.
type SQSKey struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string `json:"SecretAccessKey"`
}

// A ListedSQSKey is an access key as a list shows it.
type ListedSQSKey struct {
	AccessKeyID string `json:"AccessKeyId"`
	CreatedAt   Time   `json:"CreatedAt"`
}

// An SQSKeyList is a page of the access keys of a channel, by their IDs.
type SQSKeyList struct {
	Result []ListedSQSKey `json:"Result"` // never null
	Pages  Pages          `json:"Pages"`
}
