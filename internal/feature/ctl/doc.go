// Package ctl is broker ctl: what an operator types. It is a client of the HTTP API and of nothing else: every
// request goes through clients/go, so what it shows and changes is what any program may. It keeps one file, the
// profiles of the user (profile.go), and no state of a broker.
//
// A command is a value of cobra, whose completion asks the broker for names (complete.go). target.go finds out which
// broker is meant and with which token; table.go prints, for people or as JSON; help.go prints help, and
// ctl.go turns an error into an exit code. The files with the names of things have their commands; manifest.go,
// export.go, plan.go and apply.go are a broker as one file. Nothing here is a part of a broker that runs: package api
// and what it imports know nothing of it.
//
// doctor.go writes an archive of what a broker shows, advice.go says what is dangerous about its settings, and
// tail.go looks at timelines again and again. top.go and
// mcp.go read what others print, too, for a screen and for an assistant. broker listen --channel is here, too:
// listen.go has its consumer, and forward.go the request, which must be as the one of hotpath/push: cmd/broker compares
// the two. broker publish is ctl publish with the tokens of a demo: demo.go has the file that serve --demo writes and
// publish reads.
package ctl
