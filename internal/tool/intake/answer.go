package intake

import "time"

// AnswerWithin bounds how long a request waits for a store: after it the answer
// is 503, never silence.
const AnswerWithin = 4500 * time.Millisecond
