// Ways to break the protocol between the shipped parts, by what the simulation does to their
// messages and in the place of their surroundings.
#pragma once

namespace trainyard::sim {

enum class Mutation {
  kNone,
  // Between workers and servers.
  kRepeatIsNew,          // asynchronous: a push that comes again counts as another one
  kRepeatedRowsAreNew,   // the same of rows alone
  kOneRankTwice,         // a worker takes itself for rank 0, which is another
  kCutGradientCounts,    // a gradient counts of which only the first half has arrived
  kCutWeightsCount,      // a chunk is held of which only the first half has arrived
  kFormerRowsForgotten,  // who reads rows of a version is given the newest for it
  // What members say of themselves.
  kSealClaimed,          // a server has sealed each epoch as soon as there is one
  kPreparedClaimed,      // a server holds what an epoch starts from as soon as it has sealed it
  kVersionClaimed,       // a worker holds the version after the one that it holds
  kRestClaimed,          // a worker always rests
  kWrittenClaimed,       // a server's file of a checkpoint is on disk before it is
  kBegunNotTold,         // a coordinator that starts again is not told of the epoch that ran
  kHighestNotTold,       // nor which numbers of epochs are used
  kFormerSealCounts,     // what was sealed for a former coordinator counts for the next one
  kPushesNotTold,        // asynchronous: nor which pushes are in the servers' chunks
  kHandsNotTold,         // asynchronous: nor which samples workers have in their hands
  kSuccessorAlike,       // who starts again looks like its predecessor
  kRevisionsDisordered,  // a membership counts as newer than those that came before it
  // Between servers.
  kConfirmsEarly,       // workers are told of a step before its replica has it
  kReplicaForgets,      // a replica confirms each step and takes none
  kReplicaRoundedUp,    // a server says of all of its replicas the version of the newest
  kMovedWithoutSlots,   // a chunk that moves loses the optimizer's slots
  kMovedFormer,         // a chunk that moves has the former version's weights
  kMovedWithoutPushes,  // asynchronous: a chunk that moves forgets whose pushes are in it
                        // successor's
  kCopyMissesUpdate,    // who copies a part misses what it takes meanwhile
  kLeaverNotAwaited,    // a server that is to leave ends at once
  // The disk, and who asks the coordinator.
  kLedgerForgotten,    // a coordinator that restores does not know what former epochs have read
  kPositionForgotten,  // nor where in the stream the checkpoint was
  kEndToldEarly,       // the end is told before it is recorded
  kRowsNotLoaded,      // tables begin anew where weights come from a checkpoint
  kGoneForgotten,      // a delta does not tell which rows have gone
  kQuestionIsNew,      // a worker's question that comes again counts as another one
};

}  // namespace trainyard::sim
