//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
)

// A Pair is one MySQL and one Redis for a whole run of tests in several
// processes. Environment passes it on to them.
type Pair struct {
	MySQL, Redis               string // the addresses, as in EnvMySQL and EnvRedis
	MySQLVersion, RedisVersion string // what the servers call themselves

	started []*process
}

// StartPair starts the servers that the environment does not already name and
// asks both for their version, so that a wrong address shows before any test.
func StartPair() (*Pair, error) {
	p := &Pair{MySQL: os.Getenv(EnvMySQL), Redis: os.Getenv(EnvRedis)}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Pair) start() error {
	if p.MySQL == "" {
		server, err := startMySQL()
		if err != nil {
			return err
		}
		p.started, p.MySQL = append(p.started, server), rootDSN(server.port)
	}
	if p.Redis == "" {
		server, err := startRedis(politeRedis)
		if err != nil {
			return err
		}
		p.started, p.Redis = append(p.started, server), redisURL(server.port)
	}
	var err error
	// The errors leave out the addresses, which may contain passwords.
	if p.MySQLVersion, err = mysqlVersion(p.MySQL); err != nil {
		return fmt.Errorf("servers: ask the MySQL server for its version: %w", err)
	}
	if p.RedisVersion, err = redisVersion(p.Redis); err != nil {
		return fmt.Errorf("servers: ask the Redis server for its version: %w", err)
	}
	return nil
}

// Database returns the DSN of a new empty database and a function that drops it.
func (p *Pair) Database() (dsn string, drop func() error, err error) { return createDatabase(p.MySQL) }

// Environment returns the variables, in the form of os.Environ, that make MySQL
// and Redis of other processes use this pair.
func (p *Pair) Environment() []string {
	return []string{EnvMySQL + "=" + p.MySQL, EnvRedis + "=" + p.Redis}
}

// Close stops the servers that StartPair started and removes their data.
func (p *Pair) Close() error {
	var errs []error
	for _, server := range p.started {
		errs = append(errs, server.stop(), server.remove())
	}
	p.started = nil
	return errors.Join(errs...)
}
