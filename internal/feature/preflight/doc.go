// Package preflight looks at what a broker would start on, and says line by line what is well and what
// is to be mended: the settings, the folder, the durable store, Redis, the archive. It changes nothing; in a
// store of the archive it writes a small object and removes it.
//
// Each part asks once (durable.SurveyMySQL, durable.SurveySQLite, redisq.Servers) and makes lines of the
// answer. A part that cannot be asked has one line, and the others are asked all the same. The rules are
// those of the packages that need them: what refuses a start is an Unfit of durable or redisq, or
// durable.ErrNewerSchema or ErrOlderSchema.
//
// The files: report.go (lines, exit codes, JSON), run.go (the parts in their order), mysql.go, sqlite.go,
// redis.go, archive.go, folder.go with disk_linux.go and disk_other.go.
package preflight
