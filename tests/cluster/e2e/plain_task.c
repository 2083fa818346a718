// A task of a user's own that is nothing but C: linked against musl or glibc, it shows that the image's
// own loader and libraries start it, not those of the agent. As ps it waits to be ended; as worker it
// says what it was told and ends.
//
//   plain_task ps|worker HOST:PORT,...
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char** environ;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (char** entry = environ; *entry != NULL; ++entry) {
    if (strncmp(*entry, "LD_", 3) == 0) {
      fprintf(stderr, "has %s\n", *entry);
      return 3;
    }
  }
  const char* hosts = getenv("PS_HOSTS");
  if (hosts == NULL || strcmp(hosts, argv[2]) != 0) {
    fprintf(stderr, "PS_HOSTS is %s, the argument %s\n", hosts ? hosts : "not set", argv[2]);
    return 3;
  }
  if (strcmp(argv[1], "ps") == 0) {
    for (;;) pause();
  }
  printf("uid %d works with %s\n", (int)getuid(), hosts);
  return 0;
}
