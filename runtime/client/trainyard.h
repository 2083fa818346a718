/* libtrainyard: collective operations between the processes of one program, for programs in any
 * language. Plain C; free of LibTorch, gRPC and protobuf.
 *
 * A process listens (ty_listen), learns where the others do (ty_meet, or by means of its own), and
 * joins a group (ty_join). All ranks of a group call the same operations in the same order with the
 * same types and sizes. Nothing is negotiated: what differs is found out and is an error on all
 * ranks, which names a rank and what it is in.
 *
 * Threads: every function may be called from any thread. Operations of a group are carried out one
 * after the other in the order in which they were given; messages (ty_send, ty_receive) are outside
 * of that order. Operations of different groups do not wait for each other.
 *
 * Failures: a group in which a rank is lost, silent or in another operation is of no more use, and
 * every later call tells the first failure. ty_error_rank() is the rank to blame. A new group may
 * be joined in the same process.
 *
 * fork(): in the child every handle is dead: functions return TY_DEAD, and freeing one does
 * nothing.
 */
#ifndef TRAINYARD_H_
#define TRAINYARD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TY_API __attribute__((visibility("default")))

/* Changes when a program built against an older header can no longer be served. */
#define TY_ABI_VERSION 1
TY_API int ty_abi_version(void);
/* "0.1.0", of the library. Static. */
TY_API const char* ty_version(void);

/* The numbers stay. */
typedef enum ty_code {
  TY_OK = 0,
  TY_PENDING = 1,     /* ty_wait: not done yet */
  TY_INVALID = 2,     /* an argument is wrong; nothing was sent and the group lives on */
  TY_MISMATCH = 3,    /* a rank is in another operation, or with other types or sizes */
  TY_RANK_LOST = 4,   /* a rank died, left, or failed by itself */
  TY_TIMEOUT = 5,     /* a rank was silent for as long as the group allows */
  TY_CORRUPT = 6,     /* what came is not of this protocol, or damaged */
  TY_REFUSED = 7,     /* another secret, version or size; a rank that another process has */
  TY_UNREACHABLE = 8, /* nobody there; an address is taken */
  TY_CANCELLED = 9,   /* ty_set_interrupt's function said so, or the group was aborted here */
  TY_DEAD = 10,       /* a handle in a forked child, or of a group that has left */
  TY_NO_ROOM = 11,    /* memory */
  TY_INTERNAL = 12,
  TY_JOB_FAILED = 13 /* the job of a session has failed, and with what */
} ty_code;

/* Of the last call on this thread that did not return TY_OK: one line of UTF-8, valid until the
 * next call on it; and the rank to blame, -1 where none is known. */
TY_API const char* ty_error(void);
TY_API int ty_error_rank(void);

/* What the library has to tell, one line at a time, from any thread; NULL: to standard error, which
 * is the default. Levels: 0 debug, 1 info, 2 warning, 3 error; only from `least` on. */
typedef void (*ty_log_function)(int level, const char* line, void* data);
TY_API void ty_set_log(ty_log_function function, void* data, int least);

/* Asked about 20 times a second, on the calling thread, by calls that wait without a limit: not 0
 * ends the call with TY_CANCELLED, and the group where an operation is carried out by that very
 * thread, as ty_wait and calls without a work do where nothing else is under way. NULL: never. */
typedef int (*ty_interrupt_function)(void* data);
TY_API void ty_set_interrupt(ty_interrupt_function function, void* data);

/* ---- Where the others are -------------------------------------------------------------------- */

typedef struct ty_listener ty_listener;

/* A port that the other ranks will connect to. `address` is numeric ("127.0.0.1", "0.0.0.0", "::");
 * port 0 takes a free one. TY_UNREACHABLE: neither. */
TY_API ty_code ty_listen(const char* address, int port, ty_listener** listener);
TY_API int ty_listener_port(const ty_listener* listener);
TY_API void ty_listener_free(ty_listener* listener);

typedef struct ty_meeting {
  size_t bytes; /* sizeof(ty_meeting) */
  int rank;
  int size;
  const char* host; /* rank 0's, a name or numeric: it listens there, the others connect */
  int port;
  const char* secret; /* the same on all ranks; it is not sent */
  double seconds;     /* how long to wait for the others */
} ty_meeting;

/* All ranks call it: rank 0 at host:port collects where they listen and tells all. `addresses`
 * becomes `size` texts "host:port", numeric, by rank, and the same on all ranks; free with
 * ty_addresses_free. Ranks on one machine get the same host. TY_TIMEOUT names the ranks that have
 * not come. Waits also ask ty_set_interrupt's function. */
TY_API ty_code ty_meet(const ty_meeting* meeting, const ty_listener* listener, char*** addresses);
TY_API void ty_addresses_free(char** addresses, int size);

/* ---- Groups ---------------------------------------------------------------------------------- */

typedef enum ty_type {
  TY_FLOAT32 = 0,
  TY_FLOAT16 = 1,
  TY_BFLOAT16 = 2,
  TY_FLOAT64 = 3,
  TY_INT32 = 4,
  TY_INT64 = 5,
  TY_UINT8 = 6,
  TY_INT8 = 7,
  TY_BOOL = 8 /* one byte, 0 or 1 */
} ty_type;
#define TY_NO_TYPE (-1)

/* Integers wrap around. Booleans: the sum and maximum are "any", the product and minimum "all".
 * Bitwise: integers and booleans only. The average divides the sum by the number of ranks,
 * integers towards zero. */
typedef enum ty_reduction {
  TY_SUM = 0,
  TY_MIN = 1,
  TY_MAX = 2,
  TY_PRODUCT = 3,
  TY_BIT_AND = 4,
  TY_BIT_OR = 5,
  TY_BIT_XOR = 6,
  TY_AVERAGE = 7
} ty_reduction;

typedef struct ty_group ty_group;

typedef struct ty_group_options {
  size_t bytes; /* sizeof(ty_group_options) */
  int rank;
  int size;
  const char* const* addresses; /* "host:port", numeric, by rank, the same on all ranks */
  const char* secret;           /* the same on all ranks; not sent */
  uint64_t epoch;               /* the same on all ranks; a rank that is still in an older one is
                                   waited for */
  double join_seconds;          /* how long to wait for the others */
  double seconds;               /* of one operation, before the silent rank is blamed */
  int share_memory;             /* not 0: ranks of one host share memory */
  int deterministic;            /* not 0: reductions in the order of ranks, whatever the sizes */
  int wire;                     /* TY_FLOAT16 or TY_BFLOAT16: how float32 travels in ty_all_reduce;
                                   TY_NO_TYPE: as it is. Then arrays do not go through memory */
  size_t arena_bytes;           /* what ty_allocate may give out; 0: nothing */
} ty_group_options;

/* Connects to all other ranks. The listener may be freed afterwards. One rank alone is a group too,
 * and needs neither listener (NULL) nor addresses. */
TY_API ty_code ty_join(const ty_listener* listener, const ty_group_options* options,
                       ty_group** group);
/* Leaves: the others lose this rank if they need more of it. Waits for the operation under way, at
 * most a second, then ends the group here; what has not begun fails with TY_DEAD. Works outlive it,
 * memory of ty_allocate does not. Afterwards no ty_notify function of the group is called any more;
 * it must not be called from one, nor while another thread is in a call with this group. */
TY_API void ty_leave(ty_group* group);
TY_API int ty_rank(const ty_group* group);
TY_API int ty_size(const ty_group* group);

/* Some ranks of a group as a group of their own. All ranks of the parent call it at the same place
 * of their order with the same `ranks` (of the parent, ascending); for those that are not among
 * them *group becomes NULL. The new group fails, times out and leaves by itself. */
TY_API ty_code ty_split(ty_group* parent, const int* ranks, int count, ty_group** group);

/* Ends the group: the others fail with TY_RANK_LOST naming this rank and `why`. For a rank that
 * cannot go on. */
TY_API void ty_abort(ty_group* group, const char* why);

/* Memory that the other ranks of this machine read in place: arrays in it are not copied. Aligned
 * to 64 bytes, zero at first, the group's until it is left. All ranks should allocate the same.
 * TY_NO_ROOM where there is none, or ranks do not share memory. */
TY_API ty_code ty_allocate(ty_group* group, size_t bytes, void** memory);

typedef struct ty_totals {
  size_t bytes; /* sizeof(ty_totals) */
  uint64_t operations;
  uint64_t bytes_sent; /* payload; through memory: written to other ranks' */
  uint64_t bytes_received;
  double seconds; /* in operations, waiting included */
} ty_totals;
TY_API ty_code ty_group_totals(ty_group* group, ty_totals* totals);

/* ---- Operations ------------------------------------------------------------------------------ */

/* Contiguous elements in memory. `name` may be NULL; errors on this rank tell it. What describes
 * arrays (this, counts, names) is copied by calls; elements are not. */
typedef struct ty_array {
  void* data;
  int64_t elements;
  int type;
  const char* name;
} ty_array;

/* An operation under way. Every operation takes `work`: NULL waits until it is done and returns
 * how it went; otherwise it is only given, arrays stay valid and untouched until it is done, and
 * the handle is freed with ty_work_free (which does not wait). */
typedef struct ty_work ty_work;

/* TY_OK: it is done; TY_PENDING: not within `seconds`; others: it failed. Below 0 it waits for
 * ever, which is sooner done: the calling thread carries it out, and what stands before it, where
 * nothing is under way. */
TY_API ty_code ty_wait(ty_work* work, double seconds);
/* Whether it is done, one way or the other. */
TY_API int ty_done(const ty_work* work);
/* `function(data)` is called once when it is done, on any thread; at once if it is done already.
 * At most one for each work. It may call ty_wait, ty_done and ty_receive_source; it must not free.
 */
TY_API void ty_notify(ty_work* work, void (*function)(void* data), void* data);
/* Of a ty_receive that is done: the rank it came from. */
TY_API int ty_receive_source(const ty_work* work);
TY_API void ty_work_free(ty_work* work);

/* Every array becomes postscale * reduce(prescale * array) over all ranks; several travel together
 * where they are of one type. Factors other than 1 need floats; they are each rank's own, and not
 * compared. */
TY_API ty_code ty_all_reduce(ty_group* group, const ty_array* arrays, size_t count, int reduction,
                             double prescale, double postscale, ty_work** work);
/* `input` is the ranks' parts one after the other, counts[r] elements for rank r (NULL: all equal);
 * `output` becomes the reduction of this rank's. `input` is left as it was. */
TY_API ty_code ty_reduce_scatter(ty_group* group, const ty_array* input, const int64_t* counts,
                                 const ty_array* output, int reduction, double prescale,
                                 double postscale, ty_work** work);
/* `output` becomes all ranks' `input`, one after the other; counts[r] elements of rank r (NULL: all
 * equal). `input` may lie at its place in `output`. */
TY_API ty_code ty_all_gather(ty_group* group, const ty_array* input, const ty_array* output,
                             const int64_t* counts, ty_work** work);
/* The array becomes that of `root`. */
TY_API ty_code ty_broadcast(ty_group* group, const ty_array* array, int root, ty_work** work);
/* send_counts[r] elements of `send`, one after the other, go to rank r; receive_counts[r] come from
 * it. NULL: all equal. Counts that do not fit those of another rank are TY_MISMATCH on all ranks.
 */
TY_API ty_code ty_all_to_all(ty_group* group, const ty_array* send, const int64_t* send_counts,
                             const ty_array* receive, const int64_t* receive_counts,
                             ty_work** work);
/* Done when all ranks have come. */
TY_API ty_code ty_barrier(ty_group* group, ty_work** work);

/* A message to one rank; `tag` tells those of one pair apart. Sends are done when the array may be
 * used again, which does not mean that it has been received. */
TY_API ty_code ty_send(ty_group* group, const ty_array* array, int to, uint64_t tag,
                       ty_work** work);
/* From rank `from`, or from any (-1). TY_MISMATCH, and the message is dropped, when it is of
 * another type or size; the group lives on. */
TY_API ty_code ty_receive(ty_group* group, const ty_array* array, int from, uint64_t tag,
                          ty_work** work);

/* Checks that all ranks list the same arrays (names, types, sizes; `data` is not read): TY_MISMATCH
 * on all ranks naming the first that differs, with both ranks and both sizes; the group lives on.
 */
TY_API ty_code ty_compare(ty_group* group, const ty_array* arrays, size_t count);

/* ---- Sessions -------------------------------------------------------------------------------- */

/* A worker of a job whose model is a program's own. The process of ours beside the program knows
 * the job, and moves gradients and weights; the program computes. Threads: one at a time, but for
 * ty_session_interrupted.
 *
 *   open -> declare -> first values in place -> next -> push each -> finish -> next ...
 *
 * Of a program that makes the update itself, in place of finish:
 *
 *   sum -> the next version's values in place -> commit
 *
 * A program with state of its own, which goes with the weights (of its optimizer, of its random
 * numbers), is asked for it, and given it, in turns of their own before others:
 *
 *   next (TY_SAVE) -> save -> next ...
 *   next (TY_LOAD) -> state -> next ...
 *
 * TY_INVALID: the call is wrong, and the session goes on. Every other code ends it. */
typedef struct ty_session ty_session;

/* `path`: the socket, which the program finds in TRAINYARD_SESSION. `program` is for the job's log.
 * TY_UNREACHABLE: nobody is there. */
TY_API ty_code ty_session_open(const char* path, const char* program, ty_session** session);
/* Hangs up. Before the job is over it counts as the death of the program. */
TY_API void ty_session_free(ty_session* session);
TY_API const char* ty_session_job(const ty_session* session); /* "": a dead handle */
TY_API int ty_session_index(const ty_session* session); /* of this worker; -1: a dead handle */

/* What becomes of the rows that a sample has of one feature. */
typedef enum ty_combiner { TY_SUM_ROWS = 0, TY_MEAN_ROWS = 1, TY_SQRTN_ROWS = 2 } ty_combiner;

/* An embedding table of the job, whose rows lie on the parameter servers. */
typedef struct ty_table {
  size_t bytes;     /* sizeof(ty_table) */
  const char* name; /* until the session is freed */
  int64_t dim;      /* floats of a row */
  int combiner;     /* ty_combiner: what the job says */
} ty_table;

/* The job's tables, by number from 0. TY_INVALID: there is no such one. */
TY_API size_t ty_session_tables(const ty_session* session);
TY_API ty_code ty_session_table(const ty_session* session, size_t number, ty_table* table);

typedef struct ty_variable {
  const char* name;
  const int64_t* shape; /* row-major */
  size_t dimensions;    /* 0: a scalar */
  int type;             /* ty_type; what is trained: TY_FLOAT32 */
  int trained;          /* 0: it only travels with checkpoints */
} ty_variable;

typedef struct ty_model {
  size_t bytes;         /* sizeof(ty_model) */
  int64_t samples;      /* to train on */
  int64_t eval_samples; /* 0: it is not evaluated */
  const ty_variable* variables;
  size_t count;
  int own_update; /* not 0: the program makes the update itself, which strategy AllReduce has */
  int has_state;  /* not 0: it has state of its own */
} ty_model;

/* The same on all workers, once; copied. Waits until the job has taken it. TY_REFUSED: it is not
 * what the job has, and where; or the job's strategy leaves no update to the program. */
TY_API ty_code ty_session_declare(ty_session* session, const ty_model* model);
/* Where a variable's value and gradient are, until the session is freed; NULL: there is none. The
 * program writes the first values before its first ty_session_next, and reads those of the job
 * after each. */
TY_API void* ty_session_value(ty_session* session, size_t variable);
TY_API float* ty_session_gradient(ty_session* session, size_t variable);

typedef enum ty_turn_kind {
  TY_TRAIN = 0,
  TY_EVALUATE = 1,
  TY_DONE = 2,    /* all steps are taken */
  TY_STOPPED = 3, /* on request; it can be resumed */
  TY_LEFT = 4,    /* the job goes on without this worker, as was asked for */
  TY_SAVE = 5,    /* hand over the state that goes with the values, which are of version `step` */
  TY_LOAD = 6     /* go on with the state that goes with the values of version `step` */
} ty_turn_kind;

typedef struct ty_turn {
  size_t bytes; /* sizeof(ty_turn) */
  int kind;     /* ty_turn_kind */
  int rank;
  int ranks;
  /* Updates so far: the values' version. TY_LEFT: the job's, which may have gone on. */
  int64_t step;
  int64_t epoch;
  int64_t first_position; /* of the stream of samples, in which every sample comes once a pass;
                             TY_EVALUATE: the first sample's number */
  int64_t samples;        /* of this worker */
  int64_t step_samples;   /* of all workers */
  const int64_t* sample_numbers; /* TY_TRAIN: `samples` of them, until the next ty_session_next;
                                    else NULL */
} ty_turn;

/* The samples at `count` places of the stream from `first` on, into `numbers`: what later turns
 * will give, for whoever reads ahead. Behind ty_session_declare. */
TY_API ty_code ty_session_sample_numbers(ty_session* session, int64_t first, int64_t count,
                                         int64_t* numbers);

/* In a TY_TRAIN or TY_EVALUATE turn: the rows of `count` ids of a table as they are at the turn's
 * version (in modes Async and BoundedDelay: as they are now), into `rows`, count x dim. A row that
 * nobody has trained yet has its initial weights. Zeros, where the turn's result will not be
 * used. */
TY_API ty_code ty_session_rows(ty_session* session, size_t table, const uint64_t* ids, size_t count,
                               float* rows);
/* In a TY_TRAIN turn, before ty_session_finish: the gradients of `count` rows, SUMS over this
 * worker's samples, count x dim. An id may come more than once; the job adds up. `counts`: how
 * often each id occurs in the samples; NULL: once. */
TY_API ty_code ty_session_push_rows(ty_session* session, size_t table, const uint64_t* ids,
                                    const uint32_t* counts, size_t count, const float* gradients);
/* In a TY_TRAIN turn, before ty_session_finish: which rows of each table the samples at `count`
 * places of the stream from `first` on need: `ids[t]`, `counts[t]` of them. If a turn has just
 * these samples, its rows have come with it, and ty_session_rows does not wait. */
TY_API ty_code ty_session_look_ahead(ty_session* session, int64_t first, int64_t count,
                                     const uint64_t* const* ids, const size_t* counts);

/* Waits for the next thing to do; the values are those for it. */
TY_API ty_code ty_session_next(ty_session* session, ty_turn* turn);
/* The variable's gradient is in place: the SUM over this worker's samples. Every one that is
 * trained once a step, in any order, as early as it is there; it is not to be touched until
 * ty_session_finish or ty_session_sum returns. A turn without samples needs none. */
TY_API ty_code ty_session_push(ty_session* session, size_t variable);

typedef struct ty_outcome {
  size_t bytes;         /* sizeof(ty_outcome) */
  int complete;         /* 0: the gradients were not taken, and the same samples come again */
  int too_late;         /* not complete: backup workers had made the step without them */
  int64_t step;         /* that was taken */
  double loss;          /* mean over all workers' samples */
  double gradient_norm; /* before it was clipped; below 0: it is not clipped */
} ty_outcome;

/* In a TY_TRAIN turn, before ty_session_finish or ty_session_sum: of this worker's samples, `hits`
 * have been told right in this very pass. Where every worker with samples says so, the job records
 * the share as training_accuracy of the step. 0 up to the turn's samples, else TY_INVALID. */
TY_API ty_code ty_session_count_hits(ty_session* session, int64_t hits);
/* After all pushes: waits until the step is made. `loss_sum`: over this worker's samples. */
TY_API ty_code ty_session_finish(ty_session* session, double loss_sum, int64_t samples,
                                 ty_outcome* outcome);
/* With own_update, instead of ty_session_finish: waits until the gradients of all workers are in.
 * outcome.complete: their means over all workers' samples, clipped where the job clips, are in
 * place of the gradients, the same bits in all workers; the program writes the next version into
 * the values, all of them, and then calls ty_session_commit, whose outcome is that of the step. A
 * turn without samples is no exception. Not complete: the step is not taken; ty_session_next is
 * next. */
TY_API ty_code ty_session_sum(ty_session* session, double loss_sum, int64_t samples,
                              ty_outcome* outcome);
TY_API ty_code ty_session_commit(ty_session* session, ty_outcome* outcome);
/* Ends a TY_EVALUATE turn: of `samples` that were looked at, `hits` were right. */
TY_API ty_code ty_session_evaluated(ty_session* session, int64_t hits, int64_t samples,
                                    double loss_sum);
/* In a TY_EVALUATE turn: samples whose `labels` are 0 or 1, and the logits of 1. `hits`: how many
 * logits are above 0 with 1 and others with 0; `loss_sum`: their log loss. Both, and `count`, are
 * to be added to what ty_session_evaluated is given; the job's score has the area under the ROC
 * curve and the calibration of all samples that were scored so. TY_INVALID names a label or a logit
 * that is none. */
TY_API ty_code ty_session_score_clicks(ty_session* session, const float* logits,
                                       const uint8_t* labels, int64_t count, int64_t* hits,
                                       double* loss_sum);
/* Ends a TY_SAVE turn: `bytes` at `data`, copied. TY_NO_ROOM ends the session. */
TY_API ty_code ty_session_save(ty_session* session, const void* data, size_t bytes);
/* In a TY_LOAD turn: the state, until the next ty_session_next; not to be written. Bytes that a
 * program of this job, of this or another worker, has saved with these values. */
TY_API ty_code ty_session_state(ty_session* session, const void** data, size_t* bytes);
/* Not 0: the result of this turn will not be used; a long evaluation may end. Any thread. */
TY_API int ty_session_interrupted(const ty_session* session);
/* The program cannot go on: the job ends, with `why` as its reason. */
TY_API ty_code ty_session_abort(ty_session* session, const char* why);

/* ---- Keys ------------------------------------------------------------------------------------ */

/* A secret for `purpose` made of another, 64 hexadecimal digits and NUL: whoever knows it learns
 * nothing of `secret`. */
TY_API ty_code ty_derive(const char* secret, const char* purpose, char text[65]);

#ifdef __cplusplus
}
#endif

#endif /* TRAINYARD_H_ */
