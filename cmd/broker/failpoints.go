//go:build failpoint && unix

package main

import _ "github.com/penstock-broker/penstock/internal/failpoint/order" // `make faults`
