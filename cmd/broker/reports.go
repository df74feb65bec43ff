package main

import (
	"log/slog"
	"strings"

	"github.com/penstock-broker/penstock/internal/feature/reports"
	"github.com/penstock-broker/penstock/internal/tool/guard"
)

// The variables of Sentry that count.
const (
	sentryDSN         = "SENTRY_DSN"
	sentryEnvironment = "SENTRY_ENVIRONMENT"
)

// readReports takes a variable of Sentry. The DSN is a secret, so it may be in a file.
func (c *config) readReports(name, value string, f *faults) {
	switch name {
	case sentryDSN:
		if c.reports.DSN == "" {
			c.reports.DSN = strings.TrimSpace(value)
		}
	case sentryDSN + fileSuffix:
		content, err := readSetting(value)
		if err != nil {
			f.refuse(sentryDSN, "%s: %v", name, err)
		}
		c.reports.DSN = content
	case sentryEnvironment:
		c.reports.Environment = strings.TrimSpace(value)
	}
}

// report makes the logger report to SENTRY_DSN. The result waits for the last reports.
func (c *config) report(log *slog.Logger) (*slog.Logger, func(), error) {
	reporter, err := reports.New(c.reports, version)
	if err != nil || reporter == nil {
		return log, func() {}, err
	}
	flush := guard.BeforeEnd
	guard.BeforeEnd = func() { // a panic that ends the process is worth a report
		flush()
		reporter.Close()
	}
	log.Info("errors are reported to the server of " + sentryDSN)
	return slog.New(reporter.Handler(log.Handler())), reporter.Close, nil
}

// tripped is told of a consumer that became DEAD.
func (b *broker) tripped(consumer uint32) {
	reason := ""
	if k := b.catalogue.ConsumerByNo(consumer); k != nil {
		reason = k.StateReason
	}
	b.log.Warn(reports.TombstoneLine, "consumer", consumer, "reason", reason)
}
