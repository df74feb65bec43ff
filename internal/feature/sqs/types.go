package sqs

// The requests and answers of the actions, with the names of the JSON protocol. The tag query has the name of a
// list or map in the query protocol, where that differs, and the name of its elements in an answer.

type createQueue struct {
	QueueName  string
	Attributes map[string]string `query:"Attribute"`
	Tags       map[string]string `json:"tags" query:"Tag"`
}

type queueURL struct{ QueueUrl string }

type getQueueURL struct {
	QueueName              string
	QueueOwnerAWSAccountId string
}

type listQueues struct {
	QueueNamePrefix string
	MaxResults      *int
	NextToken       string
}

type queueURLs struct {
	QueueUrls []string `json:",omitempty" query:"QueueUrl"`
	NextToken string   `json:",omitempty"`
}

type getAttributes struct {
	QueueUrl       string
	AttributeNames []string `query:"AttributeName"`
}

type queueAttributes struct {
	Attributes map[string]string `json:",omitempty" query:"Attribute"`
}

type setAttributes struct {
	QueueUrl   string
	Attributes map[string]string `query:"Attribute"`
}

// An attribute is a message attribute.
type attribute struct {
	DataType         string
	StringValue      *string  `json:",omitempty"`
	BinaryValue      []byte   `json:",omitempty"`
	StringListValues []string `json:",omitempty" query:"StringListValue"`
	BinaryListValues [][]byte `json:",omitempty" query:"BinaryListValue"`
}

// A sending is a message to be sent.
type sending struct {
	Id                      string // of an entry of a batch
	MessageBody             *string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute `query:"MessageAttribute"`
	MessageSystemAttributes map[string]attribute `query:"MessageSystemAttribute"`
	MessageDeduplicationId  *string
	MessageGroupId          *string
}

type sendMessage struct {
	QueueUrl string
	sending
}

type sendBatch struct {
	QueueUrl string
	Entries  []sending `query:"SendMessageBatchRequestEntry"`
}

// A sent is a message that was sent.
type sent struct {
	Id                           string `json:",omitempty"`
	MessageId                    string
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

// A failure is an entry of a batch that failed.
type failure struct {
	Id          string
	SenderFault bool
	Code        string
	Message     string
}

type sentBatch struct {
	Successful []sent    `query:"SendMessageBatchResultEntry"`
	Failed     []failure `json:",omitempty" query:"BatchResultErrorEntry"`
}

type receiveMessage struct {
	QueueUrl                    string
	AttributeNames              []string `query:"AttributeName"`
	MessageSystemAttributeNames []string `query:"MessageSystemAttributeName"`
	MessageAttributeNames       []string `query:"MessageAttributeName"`
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptId     string
}

type received struct {
	Messages []message `json:",omitempty" query:"Message"`

	made func(ok bool) // is told whether the answer was made
}

// A message is one as a receiver gets it.
type message struct {
	MessageId              string
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string    `json:",omitempty" query:"Attribute"`
	MD5OfMessageAttributes string               `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty" query:"MessageAttribute"`
}

// A settling is what a receiver says of a message that it has.
type settling struct {
	Id                string // of an entry of a batch
	ReceiptHandle     string
	VisibilityTimeout *int
}

type deleteMessage struct {
	QueueUrl      string
	ReceiptHandle string
}

type changeVisibility struct {
	QueueUrl          string
	ReceiptHandle     string
	VisibilityTimeout *int
}

type deleteEntry struct{ Id, ReceiptHandle string }

type deleteBatch struct {
	QueueUrl string
	Entries  []deleteEntry `query:"DeleteMessageBatchRequestEntry"`
}

type changeBatch struct {
	QueueUrl string
	Entries  []settling `query:"ChangeMessageVisibilityBatchRequestEntry"`
}

type settledEntry struct{ Id string }

type deletedBatch struct {
	Successful []settledEntry `query:"DeleteMessageBatchResultEntry"`
	Failed     []failure      `json:",omitempty" query:"BatchResultErrorEntry"`
}

type changedBatch struct {
	Successful []settledEntry `query:"ChangeMessageVisibilityBatchResultEntry"`
	Failed     []failure      `json:",omitempty" query:"BatchResultErrorEntry"`
}
