// Package internal has no code. Its folders are three drawers, and the tests:
//
//   - model is what the broker speaks of: the catalogue, policies, filters, IDs, quotas, jobs (which
//     joins store and queue), errors, the JSON of the API;
//   - feature has a room for each whole feature: bulks, schedules, responses, alerts, status events,
//     the journal, the seed file, why nothing moves, the dashboard, wrong tokens, how each broker
//     is doing;
//   - tool is what any program could use: guard, share, egress, intake;
//   - test has the conformance suites, the simulation, the servers and the rules of the tree.
//
// No part of the model and no tool imports a feature, and of the model a tool imports only problem;
// internal/test/shape checks it.
package internal
