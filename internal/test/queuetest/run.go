package queuetest

import "testing"

// Run checks every promise of redisq.Queue. open returns an empty Server; tests
// run in parallel, each on its own.
func Run(t *testing.T, open func(t *testing.T) Server) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Server)
	}{
		{"an enqueued job is claimed once", enqueuedJobIsClaimedOnce},
		{"a higher priority goes first", higherPriorityGoesFirst},
		{"the history of the store is remembered", historyIsRemembered},
		{"the oldest goes first inside a priority", oldestGoesFirst},
		{"a delayed job becomes ready when it is due", delayedJobBecomesReady},
		{"fresh jobs offered twice are known", freshJobsOfferedTwice},
		{"repeated jobs are known in every state", repeatedJobsAreKnown},
		{"repeated and recovered jobs are flagged", offeredAgainIsFlagged},
		{"late fresh jobs are verified", lateFreshJobsAreVerified},
		{"a recovered job keeps its place", recoveredJobKeepsItsPlace},
		{"calls larger than a batch are split", largeCallsAreSplit},
		{"a fan-out reaches every consumer", fanOutReachesEveryConsumer},
		{"a fan-out of mixed jobs spills what has no room", fanOutOfMixedJobsSpillsWhatHasNoRoom},
		{"an offer leases its jobs at once if no job waits", offeredIsLeasedAtOnce},
		{"racing offers and claims give each job one lease", racingOffersAndClaims},
		{"a bad batch does not harm its neighbours", badBatchDoesNotHarm},
		{"arguments out of range change nothing", badArgumentsChangeNothing},
		{"consumers do not see each other", consumersDoNotSeeEachOther},
		{"the longest delay and the extreme priorities are exact", extremesAreExact},

		{"jobs past the window are spilled", jobsPastTheWindowAreSpilled},
		{"a better job enters a full window up to twice its size", betterJobEntersFullWindow},
		{"fresh jobs do not overtake spilled ones", freshJobsDoNotOvertake},
		{"the jobs of one fan-out keep their order where the window ends", oneFanOutKeepsItsOrder},
		{"no job below the spilled priority is leased", nothingBelowSpilled},
		{"no retry below the spilled priority is leased where the order alone decides", noRetryBelowSpilled},
		{"jobs of one priority come in the order of their messages", orderOfMessages},
		{"the refill loads spilled jobs in order", refillBringsBack},
		{"a refill notices concurrent spills", refillSeesOthersSpill},
		{"known jobs are never spilled", knownJobsAreNeverSpilled},
		{"the state is whole after a scan", wholeAfterAScan},
		{"no job is leased while four windows are delayed", nothingWhileDelayedIsFull},

		{"no window of a rate holds more leases", rateHoldsInEveryWindow},
		{"brokers share a rate, offers and claims by ID included", rateIsShared},
		{"a lease that was not used is not counted", unusedLeaseIsNotCounted},
		{"the concurrency counts the leases of all brokers", concurrencyCountsLeases},
		{"a held consumer gets no leases", heldGetsNothing},
		{"the outlook says what keeps jobs back, and changes nothing", outlookSaysWhy},
		{"the outlook knows parked jobs and the place of a job", outlookKnowsPlaces},
		{"retries get their share while first attempts wait", retriesGetTheirShare},
		{"retries take no room of first attempts", retriesTakeNoRoom},

		{"a replay gets leases only behind its consumer", replayIsBehindItsConsumer},
		{"a replay and its consumer share rate, concurrency and hold", replaySharesTheLimits},
		{"a replay may have a rate of its own", replayHasARateOfItsOwn},
		{"a consumer of the past begins behind its past", behindItsPast},

		{"a lease is fenced by its token", leaseIsFenced},
		{"an ack needs no lease and may be repeated", ackNeedsNoLease},
		{"acks for many consumers go at once", acksForMany},
		{"a nack waits out its delay", nackWaitsOutItsDelay},
		{"a nack without delay is ready at once", nackWithoutDelay},
		{"a job that is given back was not attempted", givenBackIsNoAttempt},
		{"a release takes the old place and charges nothing", releaseTakesOldPlace},
		{"an extended lease does not end", extendedLeaseDoesNotEnd},
		{"an extension may shorten a lease", extensionMayShorten},
		{"a job named twice in a call moves once", namedTwiceMovesOnce},
		{"replaying any step changes nothing", replayChangesNothing},

		{"an ended lease is ready again and flagged", endedLeaseIsReadyAgain},
		{"an exhausted job is leased to the caller of reclaim", exhaustedStaysWithReclaimer},
		{"reclaiming reports an empty consumer", reclaimTellsEmpty},
		{"reclaiming promotes due jobs", reclaimLetsDueJobsIn},
		{"reclaiming is bounded", reclaimIsBounded},

		{"one broker at a time fetches a token", oneFetchesAToken},
		{"brokers share the places of a publish rate", brokersSharePlaces},
		{"places are taken in all publish rates or in none", placesInAllRates},
		{"a lease names the worker that has it", leaseNamesItsWorker},
		{"brokers share what they know of workers", presenceIsShared},
		{"brokers share what they say of themselves", notesOfBrokersAreShared},

		{"one job is claimed by name", claimedByName},
		{"an unknown job is leased only on demand", unknownJobOnDemand},
		{"one of fifty racing claims wins", racingClaimsOneWins},
		{"eight reapers count each ended lease once", reapersCountOnce},
		{"racing claims share the jobs", racingClaimsShare},
		{"racing reclaim and ack leave no job", reclaimAndAckRace},

		{"a parked job is ready again at its old place", parkedJobKeepsItsPlace},
		{"a parked job is due in the end", parkedJobIsDueInTheEnd},
		{"a job that is unparked before it is parked is ready", unparkedBeforeParked},
		{"unparking leaves retries alone", unparkLeavesRetriesAlone},
		{"parked jobs are bounded and keep no other job", parkedJobsAreBounded},
		{"a hastened job is ready now", hastenedJobIsReadyNow},
		{"more jobs than a batch are hastened", manyHastened},
		{"an ack asks its hook first", ackAsksItsHookFirst},

		{"peeking lists the order of claiming", peekListsOrder},
		{"peeking goes on after a job that is gone", peekGoesOnBehindGone},
		{"peeking pages through one millisecond", peekPagesThroughMillisecond},
		{"probing reports every state", probeTellsEveryState},
		{"stats report sizes and times", statsCount},
		{"claims report the time of the next due job", claimsTellWhenToAsk},

		{"the first contact is an adoption", firstContactIsAdoption},
		{"a second broker adopts without a loss elsewhere", secondBrokerAdopts},
		{"every verb notices an emptied Redis", everyVerbNoticesFlush},
		{"after a flush at any step all jobs come back", flushAtAnyStep},
		{"jobs are recovered only into the state with the given epoch", recoverOnlyInto},
		{"jobs are offered again only to the state of their first offer", offerAgainOnlyThere},
		{"racing calls after a flush report it once", racingAfterFlush},
		{"many consumers are adopted at once", manyAdoptedAtOnce},
		{"lost leases are restored", lostLeasesComeBack},
		{"a lease is not restored over another lease or an attempt that has ended", leasesOfOthersDoNotComeBack},
		{"renewing is noticed by every broker and keeps jobs", renewIsNoticed},
		{"scripts forgotten by Redis are sent again", forgottenScripts},
		{"tokens never repeat over a flush", tokensNeverRepeat},
		{"a forgotten consumer leaves no key", forgottenConsumer},

		{"a hint reaches subscribers", hintReachesSubscribers},
		{"the keys of a consumer share a slot", keysShareSlot},
		{"twenty windows of jobs drain in order", manyJobsDrain},
		{"random operations match the model", randomOperations},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, open(t))
		})
	}
}
