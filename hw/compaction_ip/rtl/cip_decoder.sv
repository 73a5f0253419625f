// Turns the words of an input's blocks into records: keys in slots for the merger, values in a queue.
//
// A window of two words (`near` holds the byte at `lane`, `far` the next eight) and one rotator give any eight bytes
// of the stream, turned to the lanes where they are wanted. Per record:
//   Head   the header's bytes are taken out of the window
//   Parse  shared, unshared and value length; the limits are checked
//   Word   the user key's words, one per cycle: shared bytes copied from the slot of the key before, the rest from
//          the stream, zeros behind the end
//   Trail  sequence and kind
//   Value  eight bytes per cycle
// There are two slots: one is being merged, one is being filled.
//
// A key may share bytes with the trailer of the key before it ("ab" and its trailer, then "ab\x01..."): rare, legal,
// and done by an extra cycle per word in which the old trailer is turned into place (Extend).
module cip_decoder (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // the input's words
    input  logic                 word_valid_i,
    input  cip_pkg::word_t       word_i,
    output logic                 word_pop_o,
    // the oldest record, of whose key the word at `key_index_i`
    output logic                 head_valid_o,
    output cip_pkg::head_t       head_o,
    input  cip_pkg::key_index_t  key_index_i,
    input  logic                 head_pop_i,
    // values
    input  logic                 value_full_i,
    output logic                 value_write_o,
    output cip_pkg::word_t       value_o,
    // status
    output logic                 record_found_o,
    output logic                 moving_o,
    output logic                 error_valid_o,
    output cip_pkg::error_code_e error_code_o
);
  typedef enum logic [3:0] {
    StOpen, StFill, StHead, StParse, StExtend, StWord, StTrail, StValue, StSkip, StDone, StFail
  } state_e;
  state_e state_q, state_d;

  // The block: words not yet taken from the queue, entry bytes not yet decoded.
  cip_pkg::block_open_t opening;
  cip_pkg::block_words_t words_left_q;
  cip_pkg::block_length_t entries_left_q;
  cip_pkg::word_t near_q, far_q;
  logic near_valid_q, far_valid_q;
  cip_pkg::lane_t lane_q;

  // The record at hand and the key before it.
  cip_pkg::entry_header_t header_q;
  cip_pkg::user_length_t user_length_q, before_length_q;
  cip_pkg::lane_count_t trailer_bytes_q;  // of its trailer, those that it does not share
  cip_pkg::key_length_t key_length_before_q;
  logic has_before_q;
  cip_pkg::value_length_t value_bytes_q, value_left_q;
  logic [cip_pkg::ValueLengthWidth:0] entry_bytes_q;
  logic check_entry_q, key_bad_q, entry_bad_q;
  cip_pkg::error_code_e error_code_q;
  cip_pkg::word_t trailer_q, extension_q;
  logic reaches_q, turned_in_q, in_trail_q;
  logic [2:0] index_q;  // of the user key's words
  cip_pkg::lane_t turn_q;
  cip_pkg::key_length_t shared_left_q, user_left_q, before_left_q;
  // The same, of the word at hand. Kept beside the sums so that no sum lies on the way of the window.
  cip_pkg::lane_count_t shared_here_q, user_here_q, before_here_q;

  // Slots.
  logic [cip_pkg::KeyWordWidth-1:0] slots[2*cip_pkg::SlotWords];
  logic [1:0] slot_ready_q;
  logic fill_slot_q, read_slot_q;
  logic [cip_pkg::ValueLengthWidth-1:0] slot_value_q[2];
  logic slot_write, slot_free;
  cip_pkg::key_word_t slot_word;
  cip_pkg::key_index_t slot_index;
  cip_pkg::word_t before_bytes, before_word;
  cip_pkg::lane_count_t unused_before_count;

  // ---- The window: eight bytes from `lane` on, turned so that stream byte `lane` lands where it is wanted.
  cip_pkg::word_t mixed, turned;
  cip_pkg::lane_t amount;
  logic window_ready;
  always_comb begin
    for (int j = 0; j < cip_pkg::WordBytes; j++)
      mixed[8*j+:8] = state_q == StExtend ? trailer_q[8*j+:8]
          : cip_pkg::LaneWidth'(j) < lane_q ? far_q[8*j+:8] : near_q[8*j+:8];
  end
  cip_byte_rotate u_window (.data_i(mixed), .amount_i(amount), .data_o(turned));
  assign window_ready = near_valid_q && far_valid_q;

  // ---- The header.
  cip_pkg::lane_count_t header_bytes;
  cip_pkg::key_length_t shared_bytes, unshared_bytes, key_length, user_length;
  cip_pkg::value_length_t header_value;
  logic lengths_bad, value_long;
  always_comb begin
    header_value = {header_q.value_high.digits, header_q.value_middle.digits, header_q.value_low.digits};
    header_bytes = 4'd5;
    if (!header_q.value_low.more) begin
      header_value = cip_pkg::ValueLengthWidth'(header_q.value_low.digits);
      header_bytes = 4'd3;
    end else if (!header_q.value_middle.more) begin
      header_value = cip_pkg::ValueLengthWidth'({header_q.value_middle.digits, header_q.value_low.digits});
      header_bytes = 4'd4;
    end
  end
  assign value_long     = header_q.value_low.more && header_q.value_middle.more && header_q.value_high.more;
  assign shared_bytes   = cip_pkg::KeyLengthWidth'(header_q.shared.digits);
  assign unshared_bytes = cip_pkg::KeyLengthWidth'(header_q.unshared.digits);
  assign key_length     = shared_bytes + unshared_bytes;
  assign user_length    = key_length - cip_pkg::KeyTrailerBytes;

  // A key that ends within what it shares, and is shorter than the one before, would come before it.
  assign lengths_bad = header_q.shared.more || header_q.unshared.more
      || key_length < cip_pkg::KeyTrailerBytes || key_length > cip_pkg::KeyBytesMax
      || shared_bytes > key_length_before_q
      || (unshared_bytes < cip_pkg::KeyTrailerBytes && key_length_before_q > key_length);

  // How much of a length lies in the first word of it, and in the word after the one at hand.
  function automatic logic [cip_pkg::LaneCountWidth-1:0] in_first(input logic [cip_pkg::KeyLengthWidth-1:0] length);
    in_first = length > 8'd8 ? 4'd8 : length[3:0];
  endfunction
  function automatic logic [cip_pkg::LaneCountWidth-1:0] in_next(input logic [cip_pkg::KeyLengthWidth-1:0] length);
    in_next = length > 8'd15 ? 4'd8 : length > 8'd8 ? {1'b0, length[2:0]} : 4'd0;
  endfunction
  function automatic logic [cip_pkg::KeyLengthWidth-1:0] behind_word(input logic [cip_pkg::KeyLengthWidth-1:0] length);
    behind_word = length > 8'd8 ? length - 8'd8 : 8'd0;
  endfunction

  // ---- How many bytes the step at hand takes from the stream: known beforehand, in `take_here`, but for headers.
  logic step, advance;
  cip_pkg::lane_count_t taken, take_here_q, take_first, take_next, lane_after;
  assign slot_free = !slot_ready_q[fill_slot_q];
  always_comb begin
    step   = 1'b0;
    taken  = take_here_q;
    amount = lane_q;
    unique case (state_q)
      StParse: begin
        step  = window_ready;
        taken = header_bytes;
      end
      StExtend: amount = turn_q;
      StWord, StTrail: begin
        step   = window_ready && slot_free && (!reaches_q || turned_in_q);
        amount = lane_q - shared_here_q[cip_pkg::LaneWidth-1:0];
      end
      StValue: step = window_ready && !value_full_i;
      default: ;
    endcase
  end
  assign lane_after = {1'b0, lane_q} + taken;
  assign advance    = step && lane_after[cip_pkg::LaneWidth];

  // Of the first word: what neither the shared bytes nor the end of the key leave out. Of the next: likewise.
  always_comb begin
    take_first = 4'd8 - {1'b0, shared_bytes[2:0]};
    if (unshared_bytes[6:3] == 4'd1 && {1'b0, unshared_bytes[2:0]} < take_first)
      take_first = {1'b0, unshared_bytes[2:0]};
    if (shared_bytes[6:3] != 4'd0 || unshared_bytes[6:3] == 4'd0) take_first = 4'd0;
  end
  assign take_next = in_next(user_left_q) > in_next(shared_left_q) ? in_next(user_left_q) - in_next(shared_left_q)
      : 4'd0;

  // ---- Key words.
  cip_pkg::word_t source, built;
  logic [cip_pkg::WordBytes-1:0] keep, behind;
  assign source = reaches_q ? extension_q : before_word;
  always_comb begin
    for (int j = 0; j < cip_pkg::WordBytes; j++) begin
      keep[j]       = cip_pkg::LaneCountWidth'(j) < (state_q == StExtend ? before_here_q : shared_here_q);
      behind[j]     = state_q != StTrail && cip_pkg::LaneCountWidth'(j) >= user_here_q;
      built[8*j+:8] = behind[j] ? 8'd0 : keep[j] ? source[8*j+:8] : turned[8*j+:8];
    end
  end
  always_comb begin
    slot_word.bytes = cip_pkg::reversed(built);
    slot_word.count = user_left_q > 8'd8 ? cip_pkg::MoreWords : user_left_q[3:0];
    if (state_q == StTrail) begin
      slot_word.bytes = ~built;
      slot_word.count = 4'd0;
    end
  end
  assign slot_write = step && (state_q == StWord || state_q == StTrail);
  assign slot_index = {1'b0, index_q} + cip_pkg::KeyIndexWidth'(state_q == StTrail);
  always_ff @(posedge clk_i) if (slot_write) slots[{fill_slot_q, slot_index}] <= slot_word;
  assign {before_bytes, unused_before_count} = slots[{!fill_slot_q, 1'b0, index_q}];
  assign before_word = cip_pkg::reversed(before_bytes);

  assign head_valid_o        = slot_ready_q[read_slot_q];
  assign head_o.exhausted    = state_q == StDone && slot_ready_q == 2'b00;
  assign head_o.value_length = slot_value_q[read_slot_q];
  assign head_o.word         = slots[{read_slot_q, key_index_i}];

  assign value_write_o  = step && state_q == StValue;
  assign value_o        = turned;
  assign record_found_o = step && state_q == StTrail;

  // ---- Words from the queue: what opens a block, then the window's refill, then what no entry needs.
  logic refill;
  assign opening    = word_i[cip_pkg::BlockOpenWidth-1:0];
  assign refill     = (advance || !window_ready) && state_q != StOpen && state_q != StSkip && words_left_q != '0;
  assign word_pop_o = word_valid_i && (state_q == StOpen
      || (state_q == StSkip ? words_left_q != '0 : refill && state_q != StFail && state_q != StDone));
  assign moving_o   = word_pop_o;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      near_valid_q <= 1'b0;
      far_valid_q  <= 1'b0;
    end else if (state_q == StOpen || state_q == StSkip) begin
      near_valid_q <= 1'b0;
      far_valid_q  <= 1'b0;
    end else if (advance || !near_valid_q) begin
      near_q       <= far_q;
      near_valid_q <= far_valid_q;
      far_q        <= word_i;
      far_valid_q  <= word_pop_o;
    end else if (!far_valid_q) begin
      far_q       <= word_i;
      far_valid_q <= word_pop_o;
    end
  end

  // ---- What comes next.
  logic reaches, last_word, last_value, no_entries;
  assign reaches    = has_before_q && header_q.shared.digits > before_length_q;
  assign last_word  = user_left_q <= 8'd8;
  assign last_value = value_left_q <= 21'd8;
  assign no_entries = entries_left_q == '0;
  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StOpen:   if (word_valid_i) state_d = opening.is_end ? StDone : opening.entry_bytes == '0 ? StSkip : StFill;
      StFill:   if (window_ready) state_d = StHead;
      StHead:   if (window_ready) state_d = StParse;
      StParse:  if (step) state_d = reaches ? StExtend : StWord;
      StExtend: state_d = in_trail_q ? StTrail : StWord;
      StWord:   if (step) state_d = reaches_q ? StExtend : last_word ? StTrail : StWord;
      StTrail:  if (step) state_d = value_bytes_q != '0 ? StValue : no_entries ? StSkip : StHead;
      StValue:  if (step && last_value) state_d = no_entries ? StSkip : StHead;
      StSkip:   if (words_left_q == '0 || (word_pop_o && words_left_q == 22'd1)) state_d = StOpen;
      StDone:   ;
      default:  state_d = StFail;
    endcase
    if (key_bad_q || entry_bad_q) state_d = StFail;
  end

  // A cycle behind Parse the lengths are checked, a cycle later that counts: the record's first words may be in
  // their slot by then, but a job with an error gives nothing.
  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      state_q       <= StOpen;
      slot_ready_q  <= 2'b00;
      fill_slot_q   <= 1'b0;
      read_slot_q   <= 1'b0;
      check_entry_q <= 1'b0;
      key_bad_q     <= 1'b0;
      entry_bad_q   <= 1'b0;
      error_code_q  <= cip_pkg::ErrNone;
    end else begin
      state_q <= state_d;
      if (head_pop_i) begin
        slot_ready_q[read_slot_q] <= 1'b0;
        read_slot_q               <= !read_slot_q;
      end
      if (record_found_o) begin
        slot_ready_q[fill_slot_q] <= 1'b1;
        fill_slot_q               <= !fill_slot_q;
      end
      check_entry_q <= state_q == StParse && step;
      key_bad_q     <= check_entry_q && lengths_bad;
      entry_bad_q   <= check_entry_q
          && (value_long || cip_pkg::BlockLengthWidth'(entry_bytes_q) > entries_left_q);
      if (key_bad_q || entry_bad_q) error_code_q <= key_bad_q ? cip_pkg::ErrKey : cip_pkg::ErrEntry;
    end
  end
  assign error_valid_o = state_q == StFail;
  assign error_code_o  = error_code_q;

  // ---- The record at hand.
  always_ff @(posedge clk_i) begin
    if (word_pop_o && state_q != StOpen) words_left_q <= words_left_q - 22'd1;
    if (step) lane_q <= lane_after[cip_pkg::LaneWidth-1:0];
    if (check_entry_q) entries_left_q <= entries_left_q - cip_pkg::BlockLengthWidth'(entry_bytes_q);
    unique case (state_q)
      StOpen: if (word_valid_i) begin
        lane_q              <= opening.lane;
        words_left_q        <= opening.words;
        entries_left_q      <= opening.entry_bytes;
        has_before_q        <= 1'b0;
        key_length_before_q <= '0;
      end
      StHead: header_q <= turned[cip_pkg::EntryHeaderWidth-1:0];
      StParse: if (step) begin
        user_length_q   <= user_length[cip_pkg::UserLengthWidth-1:0];
        trailer_bytes_q <= in_first(unshared_bytes);
        value_bytes_q   <= header_value;
        entry_bytes_q   <= {1'b0, header_value} + {14'b0, unshared_bytes} + {18'b0, header_bytes};
        shared_left_q   <= shared_bytes;
        user_left_q     <= user_length;
        before_left_q   <= {1'b0, before_length_q};
        shared_here_q   <= in_first(shared_bytes);
        user_here_q     <= in_first(user_length);
        before_here_q   <= in_first({1'b0, before_length_q});
        take_here_q     <= take_first;
        turn_q          <= 3'd0 - before_length_q[2:0];
        index_q         <= '0;
        turned_in_q     <= 1'b0;
        in_trail_q      <= 1'b0;
        reaches_q       <= reaches;
      end
      // The bytes of the old trailer take their place, in a key word or (once the key is whole) in the new trailer.
      StExtend: begin
        for (int j = 0; j < cip_pkg::WordBytes; j++)
          extension_q[8*j+:8] <= keep[j] && !in_trail_q ? before_word[8*j+:8] : turned[8*j+:8];
        turned_in_q <= 1'b1;
      end
      StWord: if (step) begin
        shared_left_q <= behind_word(shared_left_q);
        before_left_q <= behind_word(before_left_q);
        user_left_q   <= user_left_q - 8'd8;
        shared_here_q <= in_next(shared_left_q);
        user_here_q   <= in_next(user_left_q);
        before_here_q <= in_next(before_left_q);
        take_here_q   <= take_next;
        turned_in_q   <= 1'b0;
        if (last_word) begin
          shared_here_q <= 4'd8 - trailer_bytes_q;
          take_here_q   <= trailer_bytes_q;
          in_trail_q    <= 1'b1;
          turn_q        <= user_length_q[2:0] - before_length_q[2:0];
        end else index_q <= index_q + 3'd1;
      end
      StTrail: if (step) begin
        trailer_q                 <= built;
        has_before_q              <= 1'b1;
        before_length_q           <= user_length_q;
        key_length_before_q       <= {1'b0, user_length_q} + cip_pkg::KeyTrailerBytes;
        slot_value_q[fill_slot_q] <= value_bytes_q;
        value_left_q              <= value_bytes_q;
        take_here_q               <= value_bytes_q[20:3] != '0 ? 4'd8 : {1'b0, value_bytes_q[2:0]};
        in_trail_q                <= 1'b0;
      end
      StValue: if (step) begin
        value_left_q <= value_left_q - 21'd8;
        take_here_q  <= value_left_q[20:4] != '0 ? 4'd8 : {1'b0, value_left_q[2:0]};
      end
      default: ;
    endcase
  end
endmodule
