package apitype

// An SQSKey is an access key of SQS clients. Nothing shows its secret again.
type SQSKey struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string `json:"SecretAccessKey"`
}
