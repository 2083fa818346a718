/* The mean of a number that each process has: what a C program needs of libtrainyard.
 *
 *   cc mean.c $(pkg-config --cflags --libs trainyard) -o mean
 *   trainyard run -np 4 -- ./mean
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard.h>

static const char* told(const char* name) {
  const char* value = getenv(name);
  if (value != NULL) return value;
  fprintf(stderr, "mean: %s is not set; start me by trainyard run -np 2 -- ./mean\n", name);
  exit(2);
}

static void check(ty_code code) {
  if (code == TY_OK) return;
  fprintf(stderr, "mean: %s (rank %d)\n", ty_error(), ty_error_rank());
  exit(1);
}

int main(void) {
  const int rank = atoi(told("RANK")), size = atoi(told("WORLD_SIZE"));
  char host[256] = "";
  const char* colon = strrchr(told("TRAINYARD_RENDEZVOUS"), ':');
  if (colon == NULL) return 2;
  snprintf(host, sizeof(host), "%.*s", (int)(colon - told("TRAINYARD_RENDEZVOUS")), told("TRAINYARD_RENDEZVOUS"));

  ty_listener* listener;
  char** addresses;
  ty_group* group;
  check(ty_listen("0.0.0.0", 0, &listener));
  const ty_meeting meeting = {sizeof(meeting), rank, size, host, atoi(colon + 1), told("TRAINYARD_SECRET"), 60};
  check(ty_meet(&meeting, listener, &addresses));
  const ty_group_options options = {sizeof(options), rank, size, (const char* const*)addresses, told("TRAINYARD_SECRET"),
                                    1, 60, 60, 1, 0, TY_NO_TYPE, 0};
  check(ty_join(listener, &options, &group));

  double mean = rank + 1;
  const ty_array array = {&mean, 1, TY_FLOAT64, "mean"};
  check(ty_all_reduce(group, &array, 1, TY_AVERAGE, 1, 1, NULL));
  printf("rank %d of %d: the mean is %g\n", rank, size, mean);

  ty_leave(group);
  ty_addresses_free(addresses, size);
  ty_listener_free(listener);
  return 0;
}
