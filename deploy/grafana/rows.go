package main

// rows are the board, from what users notice to what explains it.
var rows = []row{
	{"Consumers", []chart{
		{title: "Oldest waiting job", unit: "s", about: "The age that the users of a consumer notice.",
			queries: one(level("oldest_waiting_seconds"), who)},
		{title: "Age by its objective", unit: "percentunit", about: "Above 100 % the consumer is later than its maxAge.",
			queries: one(level("oldest_waiting_seconds")+" / "+level("max_age_seconds"), who)},
		{title: "Waiting jobs", unit: "short", about: "With the delayed ones.", queries: one(level("waiting"), who)},
		{title: "Jobs in flight and delayed", unit: "short", queries: []query{
			{level("in_flight"), "in flight: " + who}, {level("delayed"), "delayed: " + who}}},
		{title: "Attempts by outcome", unit: "ops", queries: one(
			"sum by (outcome) (rate(penstock_consumer_attempts_total"+pick+"[$__rate_interval]))", "{{outcome}}")},
		{title: "Accepted jobs", unit: "ops", queries: one(rate("accepted_total"), who)},
		{title: "Time of an attempt, 99 %", unit: "s", queries: one(
			quantile("0.99", "penstock_consumer_delivery_seconds", pick, "channel, consumer, "), who)},
		{title: "Dead letters", unit: "short", queries: one(level("dead"), who)},
		{title: "Held consumers", unit: "short", about: "By the reason that why gives.", queries: one(
			"max by (channel, consumer, reason) (penstock_consumer_held"+pick+")", "{{reason}}: "+who)},
		{title: "Rests of holds, and slowed rates", unit: "short", queries: []query{
			{level("held_seconds"), "seconds: " + who},
			{"max by (channel, consumer) (penstock_adaptive_rate" + pick + ")", "attempts/s: " + who}}},
		{title: "Consumers by state", unit: "short", queries: one(
			"sum by (state) (max by (channel, consumer, state) (penstock_consumer_state"+pick+"))", "{{state}}")},
		{title: "Workers, and time since their last contact", unit: "short", queries: []query{
			{level("workers"), "workers: " + who},
			{"min by (channel, consumer) (penstock_consumer_last_contact_seconds" + pick + ")", "seconds: " + who}}},
		{title: "Lost leases", unit: "ops", queries: one(rate("leases_lost_total"), who)},
		{title: "Claims beyond the rate", unit: "ops", queries: one(rate("limited_total"), who)},
	}},
	{"Publishing", []chart{
		{title: "Messages", unit: "ops", queries: one("sum(rate(penstock_published_messages_total[$__rate_interval]))",
			"stored")},
		{title: "Answers by status", unit: "percentunit", queries: one(
			"sum by (status) (rate(penstock_publish_answers_total[$__rate_interval]))"+
				" / on () group_left () sum(rate(penstock_publish_answers_total[$__rate_interval]))", "{{status}}")},
		{title: "Time of a commit, 99 %", unit: "s", queries: one(
			quantile("0.99", "penstock_commit_duration_seconds", "", ""), "commit")},
		{title: "From the publish to the consumer, 99 %", unit: "s", queries: one(
			quantile("0.99", "penstock_end_to_end_seconds", "", ""), "end to end")},
		{title: "Journal: messages", unit: "short", queries: []query{
			{"penstock_journal_messages", "waiting: {{instance}}"}, {"penstock_journal_held_messages", "held: {{instance}}"}}},
		{title: "Journal: oldest message", unit: "s", queries: one("penstock_journal_oldest_seconds", "{{instance}}")},
	}},
	{"Brokers", []chart{
		{title: "Brokers alive", unit: "short", queries: one("penstock_brokers", "{{instance}}")},
		{title: "Push requests in flight", unit: "short", queries: one("penstock_push_requests_in_flight", "{{instance}}")},
		{title: "Messages that wait for Redis", unit: "short", queries: one("penstock_fanout_pending_messages",
			"{{instance}}")},
		{title: "Repairs", unit: "ops", queries: []query{
			{"sum(rate(penstock_recovered_jobs_total[$__rate_interval]))", "recovered"},
			{"sum(rate(penstock_reclaimed_jobs_total[$__rate_interval]))", "reclaimed"}}},
		{title: "Redriven dead letters", unit: "ops", queries: one(
			"sum(rate(penstock_redriven_jobs_total[$__rate_interval]))", "redriven")},
		{title: "Refused and ended under pressure", unit: "ops", queries: []query{
			{"sum by (bound) (rate(penstock_share_refused_total[$__rate_interval]))", "refused: {{bound}}"},
			{"sum by (bound) (rate(penstock_share_ended_total[$__rate_interval]))", "ended: {{bound}}"}}},
		{title: "Books and clock", unit: "short", about: "Jobs by which the books differ, and seconds of the clock.",
			queries: []query{{"penstock_books_difference_jobs", "jobs: {{instance}}"},
				{"penstock_store_clock_ahead_seconds", "seconds: {{instance}}"}}},
		{title: "Left out of /metrics/consumers", unit: "short", queries: []query{
			{"max(penstock_consumer_series_dropped)", "consumers"},
			{"max(penstock_consumer_sample_age_seconds)", "age of the sample, s"}}},
	}},
}
