// Picks the record that comes first among the inputs' oldest, and sends its key on, word by word.
//
// An order matrix says of every two compared inputs which comes first, so only a newly arrived key has to be compared:
// with all others at once, one word per cycle, until every comparison is decided. The words pass three steps (read and
// select, compare in four groups, decide). While a value is being written the next comparison is long done.
// Equal internal keys keep the order of their inputs.
module merger #(
    parameter int N = 4
) (
    input  logic            clk,
    input  logic            reset,
    // the inputs' oldest keys
    input  logic [   N-1:0] key_ready,
    input  logic [   N-1:0] exhausted,
    output logic [     3:0] key_index,
    input  logic [N*68-1:0] key_words,
    input  logic [N*21-1:0] value_lengths,
    output logic [   N-1:0] key_pop,
    // the record that comes first
    input  logic            record_ready,
    output logic            record_begin,
    output logic            word_valid,
    output logic [    67:0] word,
    output logic            word_is_trailer,
    output logic [     3:0] source,
    output logic [    20:0] value_length,
    output logic            finished,
    // why nothing moves
    output logic            starved,
    output logic            blocked
);
  localparam logic [1:0] WAIT = 2'd0, COMPARE = 2'd1, KEY = 2'd2;
  logic [1:0] state;
  logic [N-1:0] chosen, compared, fresh, fresh_first, winner;
  logic complete;

  // order[i*N+j] for i < j: input i's key comes before input j's.
  logic [N*N-1:0] order;

  assign fresh = key_ready & ~compared;
  assign fresh_first = fresh & (~fresh + 1'b1);
  assign complete = &(compared | exhausted);
  assign finished = state == WAIT && &exhausted;
  assign starved = state == WAIT && fresh == '0 && !complete;
  assign blocked = state == WAIT && fresh == '0 && complete && compared != '0 && !record_ready;
  assign record_begin = state == WAIT && fresh == '0 && complete && compared != '0 && record_ready;

  always_comb begin
    for (int i = 0; i < N; i++) begin
      winner[i] = compared[i];
      for (int j = 0; j < N; j++) begin
        if (i < j) winner[i] = winner[i] & (!compared[j] | order[i*N+j]);
        if (i > j) winner[i] = winner[i] & (!compared[j] | !order[j*N+i]);
      end
    end
  end

  // Step 1: the words, one of them chosen.
  logic one_valid, one_is_key, one_trailer;
  logic [67:0] selected;
  logic [N*68-1:0] others;
  always_comb begin
    selected = '0;
    for (int i = 0; i < N; i++) selected = selected | (key_words[68*i+:68] & {68{chosen[i]}});
  end
  always_ff @(posedge clk) begin
    word   <= selected;
    others <= key_words;
  end
  assign word_valid = one_valid && one_is_key;
  assign word_is_trailer = one_trailer;

  // Step 2: four groups of 17 bits each.
  logic two_valid, two_more;
  logic [4*N-1:0] group_less, group_equal;
  for (genvar i = 0; i < N; i++) begin : g_compare
    for (genvar g = 0; g < 4; g++) begin : g_group
      always_ff @(posedge clk) begin
        group_less[4*i+g]  <= word[17*g+:17] < others[68*i+17*g+:17];
        group_equal[4*i+g] <= word[17*g+:17] == others[68*i+17*g+:17];
      end
    end
  end

  // Step 3: decided, or on to the next word. `ended` marks equal user keys, whose next word is the trailer.
  logic [N-1:0] undecided, ended, less, equal, decide, chosen_first;
  always_comb begin
    for (int i = 0; i < N; i++) begin
      equal[i] = &group_equal[4*i+:4];
      less[i] = group_less[4*i+3] | (group_equal[4*i+3] & (group_less[4*i+2] | (group_equal[4*i+2]
          & (group_less[4*i+1] | (group_equal[4*i+1] & group_less[4*i])))));
      decide[i] = two_valid & undecided[i] & (!equal[i] | ended[i]);
    end
    // A tie of the whole internal key: the chosen one comes first if its number is lower.
    for (int i = 0; i < N; i++) begin
      chosen_first[i] = less[i];
      for (int j = 0; j < i; j++) chosen_first[i] = chosen_first[i] | (equal[i] & chosen[j]);
    end
  end
  always_ff @(posedge clk) begin
    for (int i = 0; i < N; i++) begin
      for (int j = 0; j < N; j++) begin
        if (i >= j) order[i*N+j] <= 1'b0;
        else if (chosen[i] && decide[j]) order[i*N+j] <= chosen_first[j];
        else if (chosen[j] && decide[i]) order[i*N+j] <= !chosen_first[i];
      end
    end
  end

  logic key_end;
  assign key_end = state == KEY && one_valid && word[3:0] != 4'd9;
  assign key_pop = key_end ? chosen : '0;

  always_ff @(posedge clk) begin
    if (reset) begin
      state     <= WAIT;
      compared  <= '0;
      chosen    <= '0;
      one_valid <= 1'b0;
      two_valid <= 1'b0;
      undecided <= '0;
    end else begin
      one_valid   <= state != WAIT;
      one_is_key  <= state == KEY;
      one_trailer <= key_end;
      two_valid   <= one_valid && !one_is_key;
      two_more    <= word[3:0] == 4'd9;
      key_index   <= key_index + 4'd1;
      if (two_valid) begin
        undecided <= undecided & ~decide;
        ended     <= two_more ? '0 : equal;
      end
      unique case (state)
        WAIT: begin
          key_index <= 4'd0;
          ended     <= '0;
          if (fresh != '0) begin
            chosen   <= fresh_first;
            compared <= compared | (compared == '0 ? fresh_first : '0);
            if (compared != '0) begin
              undecided <= compared;
              state     <= COMPARE;
            end
          end else if (record_begin) begin
            chosen <= winner;
            state  <= KEY;
          end
        end
        COMPARE: if (undecided == '0) begin
          compared  <= compared | chosen;
          one_valid <= 1'b0;
          two_valid <= 1'b0;
          state     <= WAIT;
        end
        default: if (key_end) begin
          compared <= compared & ~chosen;
          state    <= WAIT;
        end
      endcase
    end
  end

  // The number and value length of the chosen input, held while its key is sent.
  always_ff @(posedge clk) begin
    if (record_begin) begin
      source       <= 4'd0;
      value_length <= '0;
      for (int i = 0; i < N; i++) if (winner[i]) source <= 4'(i);
    end
    if (state == KEY) begin
      for (int i = 0; i < N; i++) if (chosen[i]) value_length <= value_lengths[21*i+:21];
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!reset) begin
    assert (!(record_begin && $countones(winner) != 1)) else $error("merger: not one winner");
  end
`endif
endmodule
