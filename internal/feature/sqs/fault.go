package sqs

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/penstock-broker/penstock/internal/model/problem"
)

// A Fault is an error as clients of SQS know it.
type Fault struct {
	Status     int
	Type       string // shape of the JSON protocol
	Code       string // of the query protocol, and of x-amzn-query-error
	Message    string
	RetryAfter int   // seconds; 0: no header
	cause      error // for the log
}

func (f *Fault) Error() string { return f.Code + ": " + f.Message }

// sender reports whether the request is at fault, and not the broker.
func (f *Fault) sender() bool { return f.Status < 500 }

// A kind is a kind of fault.
type kind struct {
	status     int
	kind, code string
}

const legacy = "AWS.SimpleQueueService."

// The kinds of faults. Type and code differ where the query protocol had another name.
var (
	noQueue           = kind{400, "QueueDoesNotExist", legacy + "NonExistentQueue"}
	queueExists       = kind{400, "QueueNameExists", "QueueAlreadyExists"}
	badHandle         = kind{400, "ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"}
	notInFlight       = kind{400, "MessageNotInflight", legacy + "MessageNotInflight"}
	badContents       = kind{400, "InvalidMessageContents", "InvalidMessageContents"}
	unsupported       = kind{400, "UnsupportedOperation", legacy + "UnsupportedOperation"}
	emptyBatch        = kind{400, "EmptyBatchRequest", legacy + "EmptyBatchRequest"}
	tooManyEntries    = kind{400, "TooManyEntriesInBatchRequest", legacy + "TooManyEntriesInBatchRequest"}
	idsNotDistinct    = kind{400, "BatchEntryIdsNotDistinct", legacy + "BatchEntryIdsNotDistinct"}
	badEntryID        = kind{400, "InvalidBatchEntryId", legacy + "InvalidBatchEntryId"}
	batchTooLong      = kind{400, "BatchRequestTooLong", legacy + "BatchRequestTooLong"}
	badAttributeName  = kind{400, "InvalidAttributeName", "InvalidAttributeName"}
	badAttributeValue = kind{400, "InvalidAttributeValue", "InvalidAttributeValue"}
	badValue          = kind{400, "InvalidParameterValue", "InvalidParameterValue"}
	missing           = kind{400, "MissingParameter", "MissingParameter"}
	badAction         = kind{400, "InvalidAction", "InvalidAction"}
	malformed         = kind{400, "SerializationException", "SerializationException"}
	badAddress        = kind{404, "InvalidAddress", "InvalidAddress"}
	badMethod         = kind{405, "MethodNotAllowed", "MethodNotAllowed"}
	badQuery          = kind{400, "InvalidQueryParameter", "InvalidQueryParameter"}
	tooSlow           = kind{400, "RequestTimeout", "RequestTimeout"}
	throttled         = kind{400, "RequestThrottled", "RequestThrottled"}
	denied            = kind{403, "AccessDenied", "AccessDenied"}
	noSignature       = kind{403, "MissingAuthenticationToken", "MissingAuthenticationToken"}
	badSignature      = kind{403, "IncompleteSignature", "IncompleteSignature"}
	otherSignature    = kind{403, "SignatureDoesNotMatch", "SignatureDoesNotMatch"}
	noKey             = kind{403, "InvalidClientTokenId", "InvalidClientTokenId"}
	unavailable       = kind{503, "ServiceUnavailable", "ServiceUnavailable"}
	internal          = kind{500, "InternalFailure", "InternalFailure"}
)

// New returns a fault of the kind.
func (k kind) New(format string, args ...any) *Fault {
	return &Fault{Status: k.status, Type: k.kind, Code: k.code, Message: fmt.Sprintf(format, args...)}
}

// missingParameter refuses a request without a parameter that it needs.
func missingParameter(name string) *Fault {
	return missing.New("The request must contain the parameter %s.", name)
}

// invalid refuses the value of a parameter as SQS does.
func invalid(value any, name, reason string) *Fault {
	return badValue.New("Value %v for parameter %s is invalid. Reason: %s", value, name, reason)
}

// faultOf turns any error into a fault. The failure of a store is 503, which SDKs try again.
func faultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	p := problem.FromChange(err)
	k := badValue
	switch p.Code {
	case "channel_not_found", "consumer_not_found", "consumer_not_pull":
		k = noQueue
	case "system_channel":
		k = denied
	case "no_such_path", "invalid_id": // a path that is no QueueUrl
		k = badAddress
	case "method_not_allowed":
		k = badMethod
	case "unknown_parameter":
		k = badQuery
	case "request_timeout": // SDKs send it again
		k = tooSlow
	}
	switch {
	case p.Code == "too_many_failures":
		k = kind{429, throttled.kind, throttled.code}
	case p.Status == 429:
		k = throttled
	case p.Status == 503:
		k = unavailable
	case p.Status >= 500:
		k = internal
	}
	f = k.New("%s", p.Detail)
	f.RetryAfter = p.RetryAfter
	if errors.Unwrap(p) != nil {
		f.cause = p
	}
	return f
}

// log logs the cause of a fault that has one.
func (f *Fault) log(log *slog.Logger, action, requestID string) {
	if f.cause != nil {
		log.Warn("a request of an SQS client failed", "action", action, "status", f.Status, "error", f.cause,
			"request_id", requestID)
	}
}
