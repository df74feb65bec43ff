// Package script reads the commands that pages of the documentation show, and runs them.
//
// page.go finds pages and their blocks, run.go runs commands with bash, words.go splits them into words.
package script
