package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/penstock-broker/penstock/durable"
	"github.com/penstock-broker/penstock/internal/model/atrest"
	"github.com/penstock-broker/penstock/internal/tool/sentence"
)

const reencryptHelp = `It encrypts all tokens, secrets and credentials in the store with BROKER_TOKEN_KEY, also those that were
stored without a key. Where tokens are not shown (BROKER_SHOW_TOKENS, by default beyond loopback), only digests of
the tokens of producers and channels are kept, for good. Texts of BROKER_TOKEN_KEY_PREVIOUS are read. Brokers on MySQL
may run meanwhile; a broker on the embedded store is stopped before. A command that was interrupted is repeated. Exit code 0: all are encrypted with the
key. 1: a key is wrong or missing. 3: the store could not be reached. ` + settingsHelp

func prepareReencrypt(f *flag.FlagSet) func([]string, io.Writer, io.Writer) int {
	plain := f.Bool("decrypt", false, "store them as they are instead, before the key is given up")
	return signalled(func(ctx context.Context, stdout, stderr io.Writer) int {
		return reencrypt(ctx, *plain, stdout, stderr)
	})
}

// reencryptPasses bounds how often rows that others changed meanwhile are looked at again.
const reencryptPasses = 10

// reencrypt encrypts what is secret in the store with the present key; plain: it decrypts it.
func reencrypt(ctx context.Context, plain bool, stdout, stderr io.Writer) int {
	cfg, err := readConfig(os.Environ(), (*config).checkFolder)
	if err != nil {
		return refuseSettings(stderr, err)
	}
	for of := range cfg.eachStore() {
		if code := reencryptStore(ctx, of, plain, stdout, stderr); code != exitClean {
			return code
		}
	}
	return exitClean
}

func reencryptStore(ctx context.Context, cfg config, plain bool, stdout, stderr io.Writer) int {
	fail := func(code int, err error) int {
		fmt.Fprintf(stderr, "broker: reencrypt: %v\n", sentence.Of(err))
		return code
	}
	if cfg.TokenKey == "" {
		return fail(exitUsage, errors.New("BROKER_TOKEN_KEY is not set"))
	}
	if plain {
		cfg.sealKeys = cfg.sealKeys.Leaving()
	}
	store, err := openStore(ctx, cfg, func(message string, _ ...any) { fmt.Fprintln(stderr, "broker:", message) })
	if err != nil {
		return fail(exitStore, err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		return fail(exitStore, err)
	}
	changed, told := 0, time.Now()
	for pass := 0; ; pass++ {
		done, err := store.Reencrypt(ctx, func(r durable.Reencryption) {
			if time.Since(told) > 10*time.Second {
				told = time.Now()
				fmt.Fprintf(stderr, "broker: %d rows looked at, %d written\n", r.Rows, r.Changed)
			}
		})
		changed += done.Changed
		switch {
		case errors.Is(err, durable.ErrKeys):
			return fail(exitUsage, ofKeys(err))
		case err != nil:
			return fail(exitStore, err)
		case done.Missed > 0 && pass == reencryptPasses:
			return fail(exitStore, fmt.Errorf("%d rows change again and again: repeat the command", done.Missed))
		case done.Missed == 0:
			what := "encrypted with the key " + cfg.sealKeys.Name()
			if plain {
				what = "stored as they are"
			}
			if cfg.storeName != "" {
				fmt.Fprintf(stdout, "store %s: ", cfg.storeName)
			}
			fmt.Fprintf(stdout, "the tokens, secrets and credentials of %d rows are %s; %d rows were written\n", done.Rows,
				what, changed)
			if done.Digests > 0 {
				fmt.Fprintf(stdout, "of %d tokens digests are kept: they open what they did, and are not shown again\n",
					done.Digests)
			}
			return exitClean
		}
	}
}

// ofKeys says what to do where keys do not open what is stored.
func ofKeys(err error) error {
	if errors.Is(err, atrest.ErrKey) {
		return fmt.Errorf("%w: set BROKER_TOKEN_KEY to that key, or BROKER_TOKEN_KEY_PREVIOUS beside the new one", err)
	}
	return err
}

// checkKeys refuses to start where the keys do not open what is stored.
func (b *broker) checkKeys(ctx context.Context) error {
	return startFailure(b.store.CheckKeys(ctx))
}

// startFailure is why a broker does not start, of an error of the store: errSettings where its keys are the wrong ones.
func startFailure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, durable.ErrKeys):
		return fmt.Errorf("%w: %w", errSettings, ofKeys(err))
	}
	return fmt.Errorf("%w: %w", errStore, err)
}
