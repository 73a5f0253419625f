// Picks the record that comes first among the inputs' oldest, and sends its key on, word by word.
//
// An order matrix says of every two compared inputs which comes first, so only a newly arrived key has to be compared:
// with all others at once, one word per cycle, until every comparison is decided. The words pass three steps (read and
// select, compare in four groups, decide). While a value is being written the next comparison is long done.
// Equal internal keys keep the order of their inputs.
module cip_merger #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                                    clk_i,
    input  logic                                    rst_i,
    // the inputs' oldest records, each a `head_t`
    input  logic [NumInputs-1:0]                    head_valid_i,
    input  logic [NumInputs*cip_pkg::HeadWidth-1:0] heads_i,
    output cip_pkg::key_index_t                     key_index_o,
    output logic [NumInputs-1:0]                    head_pop_o,
    // the record that comes first
    input  logic                                    record_ready_i,
    output logic                                    record_begin_o,
    output cip_pkg::record_t                        record_o,
    output logic                                    finished_o,
    // why nothing moves
    output logic                                    starved_o,
    output logic                                    blocked_o
);
  localparam int unsigned NumGroups = 4;
  localparam int unsigned GroupWidth = cip_pkg::KeyWordWidth / NumGroups;
  typedef logic [NumInputs-1:0] mask_t;

  typedef enum logic [1:0] {StWait, StCompare, StKey} state_e;
  state_e state_q, state_d;
  mask_t chosen_q, compared_q, exhausted, fresh, fresh_first, winner;
  logic all_compared, none_compared, settled;

  // order[i*NumInputs+j] for i < j: input i's key comes before input j's.
  logic [NumInputs*NumInputs-1:0] order_q;

  // ---- The heads, taken apart; of the chosen one all.
  cip_pkg::head_t head;
  logic [NumInputs*cip_pkg::KeyWordWidth-1:0] key_words, key_words_q;
  cip_pkg::key_word_t chosen_word, word_q;
  cip_pkg::value_length_t chosen_length;
  always_comb begin
    chosen_word   = '0;
    chosen_length = '0;
    for (int i = 0; i < NumInputs; i++) begin
      head = heads_i[cip_pkg::HeadWidth*i+:cip_pkg::HeadWidth];
      exhausted[i] = head.exhausted;
      key_words[cip_pkg::KeyWordWidth*i+:cip_pkg::KeyWordWidth] = head.word;
      if (chosen_q[i]) begin
        chosen_word   = chosen_word | head.word;
        chosen_length = chosen_length | head.value_length;
      end
    end
  end

  assign fresh          = head_valid_i & ~compared_q;
  assign fresh_first    = fresh & (~fresh + 1'b1);
  assign none_compared  = compared_q == '0;
  assign all_compared   = &(compared_q | exhausted);
  assign settled        = state_q == StWait && fresh == '0;
  assign finished_o     = state_q == StWait && &exhausted;
  assign starved_o      = settled && !all_compared;
  assign blocked_o      = settled && all_compared && !none_compared && !record_ready_i;
  assign record_begin_o = settled && all_compared && !none_compared && record_ready_i;

  always_comb begin
    for (int i = 0; i < NumInputs; i++) begin
      winner[i] = compared_q[i];
      for (int j = 0; j < NumInputs; j++) begin
        if (i < j) winner[i] = winner[i] & (!compared_q[j] | order_q[i*NumInputs+j]);
        if (i > j) winner[i] = winner[i] & (!compared_q[j] | !order_q[j*NumInputs+i]);
      end
    end
  end

  // ---- Step 1: the words, one of them chosen.
  logic one_valid_q, one_is_key_q, one_trailer_q;
  always_ff @(posedge clk_i) begin
    word_q      <= chosen_word;
    key_words_q <= key_words;
  end

  // ---- Step 2: compared in groups of bits.
  logic two_valid_q, two_more_q;
  logic [NumGroups*NumInputs-1:0] group_less_q, group_equal_q;
  logic [cip_pkg::KeyWordWidth-1:0] chosen_bits;
  assign chosen_bits = word_q;
  for (genvar i = 0; i < NumInputs; i++) begin : gen_compare
    for (genvar g = 0; g < NumGroups; g++) begin : gen_group
      logic [GroupWidth-1:0] mine, other;
      assign mine  = chosen_bits[GroupWidth*g+:GroupWidth];
      assign other = key_words_q[cip_pkg::KeyWordWidth*i+GroupWidth*g+:GroupWidth];
      always_ff @(posedge clk_i) begin
        group_less_q[NumGroups*i+g]  <= mine < other;
        group_equal_q[NumGroups*i+g] <= mine == other;
      end
    end
  end

  // ---- Step 3: decided, or on to the next word. `ended` marks equal user keys, whose next word is the trailer.
  mask_t undecided_q, ended_q, less, equal, decide, chosen_first;
  always_comb begin
    for (int i = 0; i < NumInputs; i++) begin
      equal[i] = &group_equal_q[NumGroups*i+:NumGroups];
      less[i]  = group_less_q[NumGroups*i];
      for (int g = 1; g < NumGroups; g++)
        less[i] = group_less_q[NumGroups*i+g] | (group_equal_q[NumGroups*i+g] & less[i]);
      decide[i] = two_valid_q & undecided_q[i] & (!equal[i] | ended_q[i]);
    end
    // A tie of the whole internal key: the chosen one comes first if its number is lower.
    for (int i = 0; i < NumInputs; i++) begin
      chosen_first[i] = less[i];
      for (int j = 0; j < i; j++) chosen_first[i] = chosen_first[i] | (equal[i] & chosen_q[j]);
    end
  end
  always_ff @(posedge clk_i) begin
    for (int i = 0; i < NumInputs; i++) begin
      for (int j = 0; j < NumInputs; j++) begin
        if (i >= j) order_q[i*NumInputs+j] <= 1'b0;
        else if (chosen_q[i] && decide[j]) order_q[i*NumInputs+j] <= chosen_first[j];
        else if (chosen_q[j] && decide[i]) order_q[i*NumInputs+j] <= !chosen_first[i];
      end
    end
  end

  // ---- What comes next.
  logic key_end;
  assign key_end    = state_q == StKey && one_valid_q && word_q.count != cip_pkg::MoreWords;
  assign head_pop_o = key_end ? chosen_q : '0;
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StWait: begin
        if (fresh != '0) begin
          if (!none_compared) state_d = StCompare;
        end else if (record_begin_o) state_d = StKey;
      end
      StCompare: if (undecided_q == '0) state_d = StWait;
      default:   if (key_end) state_d = StWait;
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q     <= StWait;
      compared_q  <= '0;
      chosen_q    <= '0;
      one_valid_q <= 1'b0;
      two_valid_q <= 1'b0;
      undecided_q <= '0;
    end else begin
      state_q       <= state_d;
      one_valid_q   <= state_q != StWait;
      one_is_key_q  <= state_q == StKey;
      one_trailer_q <= key_end;
      two_valid_q   <= one_valid_q && !one_is_key_q;
      two_more_q    <= word_q.count == cip_pkg::MoreWords;
      key_index_o   <= key_index_o + 1'b1;
      if (two_valid_q) begin
        undecided_q <= undecided_q & ~decide;
        ended_q     <= two_more_q ? '0 : equal;
      end
      unique case (state_q)
        StWait: begin
          key_index_o <= '0;
          ended_q     <= '0;
          if (fresh != '0) begin
            chosen_q   <= fresh_first;
            compared_q <= compared_q | (none_compared ? fresh_first : '0);
            if (!none_compared) undecided_q <= compared_q;
          end else if (record_begin_o) chosen_q <= winner;
        end
        StCompare: if (undecided_q == '0) begin
          compared_q  <= compared_q | chosen_q;
          one_valid_q <= 1'b0;
          two_valid_q <= 1'b0;
        end
        default: if (key_end) compared_q <= compared_q & ~chosen_q;
      endcase
    end
  end

  // ---- The number and value length of the chosen input, held while its key is sent.
  cip_pkg::input_id_t source_q;
  cip_pkg::value_length_t value_length_q;
  always_ff @(posedge clk_i) begin
    if (record_begin_o) begin
      source_q <= '0;
      for (int i = 0; i < NumInputs; i++) if (winner[i]) source_q <= cip_pkg::InputIdWidth'(i);
    end
    if (state_q == StKey) value_length_q <= chosen_length;
  end
  assign record_o.word_valid   = one_valid_q && one_is_key_q;
  assign record_o.is_trailer   = one_trailer_q;
  assign record_o.word         = word_q;
  assign record_o.source       = source_q;
  assign record_o.value_length = value_length_q;

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) if (!rst_i) begin
    assert (!(record_begin_o && $countones(winner) != 1)) else $error("cip_merger: not one winner");
  end
`endif
endmodule
