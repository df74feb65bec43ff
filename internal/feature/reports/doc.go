// Package reports sends what an operator of the broker must hear of to Sentry, or to a server that
// speaks its protocol, with the official SDK. Without a DSN there is no Reporter.
//
// Reported are panics, answers 500, consumers that became DEAD, and other lines of the log with the level
// error. All are read from the log (Handler): what is worth a report has a line, and lines have neither
// tokens nor payloads nor headers. No request is attached, and sessions and traces of the SDK are off.
//
// A report waits in the bounded queue of the SDK. Reports of one kind are bounded to one a minute and all
// together to thirty: a store that is away must not fill a quota. What is not sent is counted. A server that
// hangs or is away delays nothing, and the end of the process for at most two seconds.
package reports
