// How a job's embedding tables are dealt to its parameter servers. Pure.
#pragma once

namespace trainyard::runtime {

// Parts of the partitions of all tables, the same for any number of servers. Few, because each is
// asked in each step; more than one for each server's threads, of as many servers as a job with
// tables is likely to have.
inline constexpr int kTableParts = 16;

// Whose a part is, of 0 .. kTableParts - 1: a server's are neighbours.
constexpr int serverOfTablePart(int part, int servers) {
  return part * servers / kTableParts;
}

}  // namespace trainyard::runtime
