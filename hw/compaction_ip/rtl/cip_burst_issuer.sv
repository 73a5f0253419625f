// Turns blocks into bursts on the read address channel, in turn among the inputs that have room for a burst.
//
// Of each block the last five bytes of contents and type are asked for first (the restart count tells where the
// entries end, the type whether we can read them), then the whole block with its trailer. Every burst stays within
// 128 bytes, so none crosses a 4 KiB border. What was asked is told to the read return; answers come in order.
module cip_burst_issuer #(
    parameter int unsigned NumInputs = 4
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  logic                 halt_i,
    output logic                 idle_o,
    // descriptors to read for the walker; they go first
    input  logic                 desc_req_valid_i,
    output logic                 desc_req_ready_o,
    input  cip_pkg::desc_req_t   desc_req_i,
    // blocks to read
    input  logic [NumInputs-1:0] block_valid_i,
    output cip_pkg::input_id_t   block_select_o,
    input  cip_pkg::block_ref_t  block_i,
    output logic [NumInputs-1:0] block_pop_o,
    // words taken from each input's queue of read data
    input  logic [NumInputs-1:0] word_taken_i,
    // read address channel
    output logic                 ar_valid_o,
    input  logic                 ar_ready_i,
    output cip_pkg::burst_t      ar_o,
    // what was asked, in order
    output logic                 fetch_valid_o,
    input  logic                 fetch_ready_i,
    output cip_pkg::fetch_t      fetch_o
);
  localparam logic [cip_pkg::LaneWidth-1:0] TailFitsTo = 3'd3;  // a tail's five bytes from here on lie in one word
  localparam logic [cip_pkg::BurstCountWidth-1:0] TableDescWords = 5'd4, BlockDescWords = 5'd2;

  typedef enum logic [2:0] {StPick, StRead, StBegin, StSize, StIssue, StNext} state_e;
  state_e state_q, state_d;
  cip_pkg::input_id_t current_q;
  cip_pkg::fetch_kind_e kind_q;
  logic first_q, last_q, sent_q, told_q;
  cip_pkg::burst_count_t beats_q;
  cip_pkg::block_sum_t extent_q;

  // Transfers under way, per input.
  logic [NumInputs-1:0] active_q, current_one;
  cip_pkg::input_mask_t active;
  logic in_body[cip_pkg::InputSlots];
  logic untouched[cip_pkg::InputSlots];
  logic [cip_pkg::WordAddrWidth-1:0] next_word[cip_pkg::InputSlots];
  logic [cip_pkg::BlockWordsWidth-1:0] words_left[cip_pkg::InputSlots];

  // The transfer at hand.
  cip_pkg::block_ref_t at_block_q;
  logic at_body_q, at_first_q;
  cip_pkg::word_addr_t at_word_q;
  cip_pkg::block_words_t at_left_q;
  cip_pkg::addr_t tail_address_q;
  cip_pkg::block_sum_t end_position_q;
  logic is_desc, is_tail, is_body, is_end, begins_tail, ends_input, opens_body, ends_burst;
  cip_pkg::burst_count_t to_border;

  assign is_desc     = kind_q == cip_pkg::FetchDescriptor;
  assign is_tail     = kind_q == cip_pkg::FetchTail;
  assign is_body     = kind_q == cip_pkg::FetchBody;
  assign is_end      = kind_q == cip_pkg::FetchEnd;
  assign active      = cip_pkg::InputSlots'(active_q);
  assign begins_tail = is_tail && !active[current_q];
  assign to_border   = cip_pkg::BurstWords - {1'b0, at_word_q[cip_pkg::BeatWidth-1:0]};
  assign opens_body  = is_tail && last_q;
  assign ends_input  = is_end || (is_body && last_q);
  assign ends_burst  = cip_pkg::BlockWordsWidth'(to_border) >= at_left_q;
  always_comb for (int i = 0; i < NumInputs; i++) current_one[i] = current_q == cip_pkg::InputIdWidth'(i);

  // ---- Room: words that are neither in the input's queue nor on their way to it.
  localparam int unsigned FreeWidth = cip_pkg::QueueDepthBits + 1;
  logic [NumInputs-1:0] room_q;
  cip_pkg::burst_count_t reserve;
  logic reserving;
  assign reserving = state_q == StNext && !is_desc;
  assign reserve   = is_body ? beats_q : cip_pkg::BurstCountWidth'(is_end || last_q);
  for (genvar i = 0; i < NumInputs; i++) begin : gen_room
    logic [FreeWidth-1:0] free_q;
    logic reserves;
    assign reserves = reserving && current_one[i];
    always_ff @(posedge clk_i) begin
      if (rst_i) begin
        free_q    <= {1'b1, {cip_pkg::QueueDepthBits{1'b0}}};
        room_q[i] <= 1'b0;
      end else begin
        free_q    <= free_q - (reserves ? FreeWidth'(reserve) : '0) + FreeWidth'(word_taken_i[i]);
        room_q[i] <= free_q > FreeWidth'(cip_pkg::BurstWords) && !reserves;
      end
    end
  end

  // ---- Round robin: the first eligible input above the last one served, else the first of all.
  logic [NumInputs-1:0] eligible, above, choice;
  assign eligible = room_q & (active_q | block_valid_i);
  always_comb begin
    for (int i = 0; i < NumInputs; i++) above[i] = eligible[i] && cip_pkg::InputIdWidth'(i) > current_q;
    choice = above != '0 ? above & (~above + 1'b1) : eligible & (~eligible + 1'b1);
  end

  // ---- What comes next.
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StPick: if (!halt_i) begin
        if (desc_req_valid_i) state_d = StSize;
        else if (eligible != '0) state_d = StRead;
      end
      StRead:  state_d = StBegin;
      StBegin: state_d = StSize;
      // A tail that begins takes this step twice: first its place, then its burst.
      StSize:  if (!begins_tail) state_d = StIssue;
      // The address goes to memory and the note to the read return, each when its side is ready.
      StIssue: if (sent_q && (told_q || fetch_ready_i)) state_d = StNext;
      default: state_d = StPick;
    endcase
  end

  logic ar_valid_q, sends;
  cip_pkg::burst_t ar_q;
  assign sends = state_q == StIssue && !sent_q && !ar_valid_q;
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q    <= StPick;
      current_q  <= '0;
      ar_valid_q <= 1'b0;
      active_q   <= '0;
    end else begin
      state_q <= state_d;
      if (ar_ready_i) ar_valid_q <= 1'b0;
      if (sends) ar_valid_q <= 1'b1;
      if (state_q == StPick && !halt_i && !desc_req_valid_i && eligible != '0)
        for (int i = 0; i < NumInputs; i++) if (choice[i]) current_q <= cip_pkg::InputIdWidth'(i);
      if (state_q == StSize && !is_desc) active_q <= active_q | current_one;
      if (state_q == StNext && ends_input) active_q <= active_q & ~current_one;
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      // A descriptor lies within its burst: it is aligned to its size.
      StPick: begin
        kind_q          <= cip_pkg::FetchDescriptor;
        first_q         <= 1'b1;
        last_q          <= 1'b1;
        sent_q          <= 1'b0;
        told_q          <= 1'b0;
        beats_q         <= desc_req_i.is_table ? TableDescWords : BlockDescWords;
        at_word_q       <= desc_req_i.word_addr;
        at_block_q.addr <= '0;
      end
      StRead: begin
        at_block_q <= block_i;
        at_body_q  <= in_body[current_q];
        at_first_q <= untouched[current_q];
        at_word_q  <= next_word[current_q];
        at_left_q  <= words_left[current_q];
      end
      StBegin: begin
        tail_address_q <= at_block_q.addr + {8'b0, at_block_q.length} - cip_pkg::AddrWidth'(cip_pkg::RestartBytes);
        end_position_q <= {22'b0, at_block_q.addr[2:0]} + {1'b0, at_block_q.length} + cip_pkg::TrailerRounded;
        kind_q         <= at_block_q.is_end ? cip_pkg::FetchEnd
            : active[current_q] && at_body_q ? cip_pkg::FetchBody : cip_pkg::FetchTail;
      end
      StSize: begin
        if (begins_tail) begin
          at_word_q <= tail_address_q[31:3];
          at_left_q <= tail_address_q[2:0] > TailFitsTo ? 22'd2 : 22'd1;
        end
        first_q  <= is_desc || (is_body && at_first_q);
        extent_q <= is_tail ? {1'b0, at_block_q.length} : end_position_q - cip_pkg::TrailerRounded;
        if (is_end) begin
          beats_q <= '0;
          last_q  <= 1'b1;
          sent_q  <= 1'b1;
        end else if (!is_desc) begin
          beats_q <= ends_burst ? at_left_q[cip_pkg::BurstCountWidth-1:0] : to_border;
          last_q  <= ends_burst;
        end
      end
      StIssue: begin
        if (sends) sent_q <= 1'b1;
        if (fetch_ready_i) told_q <= 1'b1;
      end
      default: ;
    endcase
    if (sends) begin
      ar_q.addr           <= {at_word_q, 3'b0};
      ar_q.beats_less_one <= beats_q[cip_pkg::BeatWidth-1:0] - 4'd1;
    end
    if (state_q == StNext && !is_desc) begin
      in_body[current_q]    <= is_body || last_q;
      untouched[current_q]  <= opens_body;
      next_word[current_q]  <= opens_body ? at_block_q.addr[31:3] : at_word_q + cip_pkg::WordAddrWidth'(beats_q);
      words_left[current_q] <= opens_body ? end_position_q[24:3] : at_left_q - cip_pkg::BlockWordsWidth'(beats_q);
    end
  end

  assign idle_o           = state_q == StPick && !ar_valid_q;
  assign desc_req_ready_o = state_q == StNext && is_desc;
  assign block_select_o   = current_q;
  assign block_pop_o      = state_q == StNext && ends_input ? current_one : '0;
  assign ar_valid_o       = ar_valid_q;
  assign ar_o             = ar_q;
  assign fetch_valid_o    = state_q == StIssue && !told_q;
  assign fetch_o.extent   = extent_q;
  assign fetch_o.last     = last_q;
  assign fetch_o.first    = first_q;
  assign fetch_o.beats    = beats_q[cip_pkg::BeatWidth-1:0];
  assign fetch_o.id       = is_desc ? cip_pkg::NoInput : current_q;
  assign fetch_o.kind     = kind_q;
  assign fetch_o.lane     = at_block_q.addr[2:0];
endmodule
