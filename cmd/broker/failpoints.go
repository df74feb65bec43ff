//go:build failpoint && unix

package main

import _ "github.com/penstock-broker/penstock/internal/tool/failpoint/order" // `make faults`
