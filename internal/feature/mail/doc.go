// Package mail is the sender of mailto callbacks: each job of such a consumer is one mail, handed in at the
// mail server of the installation. It is a row of the table of senders of package push, so attempts, retries,
// dead letters, pauses, rates and metrics are those of every push consumer.
//
//	server.go   the mail server of the settings: its URL, encryption, bounds of a connection
//	letter.go   one mail: its headers and text, and how it is handed in
//	reply.go    what the mail server said, as the end of an attempt
//	address.go  the addresses of a callback URL
//	sender.go   the row of the table, and one attempt
//	collect.go  jobs that share a mail
//	fill.go     the places of the templates for subject and text
//
// The mail server is chosen by the operator, so the rules for the addresses of callbacks do not apply to it.
// Callbacks choose who gets the mails: the setting of the domains bounds that.
//
// A Message-ID is made of the ID of the job. An attempt whose end is unknown is repeated with the same one,
// by which receivers recognise the repetition.
package mail
