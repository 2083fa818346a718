// A task whose first act is to look up the name of each worker of its job, for bench/operator/names.py. Names that are not
// known yet are asked for again until all are. Prints one line:
//
//   looked up NAMES, of which FAILED failed at first; all known after MILLISECONDS ms
//
// Linked with musl, whose resolver asks the cluster's DNS each time and keeps nothing.
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostNames = 1024 };

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static bool is_known(const char* name) {
  struct addrinfo* found = NULL;
  if (getaddrinfo(name, NULL, NULL, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

// The hosts of HOST:PORT,...; changes `list`.
static int hosts_of(char* list, char** hosts) {
  int count = 0;
  for (char* entry = strtok(list, ","); entry != NULL && count < kMostNames; entry = strtok(NULL, ",")) {
    *strrchr(entry, ':') = '\0';
    hosts[count++] = entry;
  }
  return count;
}

int main(void) {
  char* hosts[kMostNames];
  const double began = now();
  const int names = hosts_of(getenv("WORKER_HOSTS"), hosts);
  int unknown = 0;
  for (int i = 0; i < names; ++i) {
    if (!is_known(hosts[i])) hosts[unknown++] = hosts[i];
  }
  const int failed = unknown;
  while (unknown > 0) {
    const struct timespec pause = {0, 50 * 1000 * 1000};
    nanosleep(&pause, NULL);
    if (is_known(hosts[unknown - 1])) --unknown;
  }
  printf("looked up %d, of which %d failed at first; all known after %.0f ms\n", names, failed, now() - began);
  return 0;
}
